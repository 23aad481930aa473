#include "metrics/metric_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <mutex>
#include <utility>

#include "base/json.h"
#include "sqlite/sqlite.h"

namespace yard::metrics {

using sqlite::Connection;
using sqlite::Transaction;

namespace {

// "yrdm" in ASCII.
constexpr int kApplicationId = 0x7972646d;
constexpr const char* kSteps[] = {R"sql(
CREATE TABLE series (
  id INTEGER PRIMARY KEY,
  space TEXT NOT NULL,
  name TEXT NOT NULL,
  dimensions TEXT NOT NULL,
  unit TEXT NOT NULL,
  last_s INTEGER NOT NULL,
  UNIQUE (space, name, dimensions)
);
CREATE TABLE points (
  series_id INTEGER NOT NULL,
  level INTEGER NOT NULL,
  t_s INTEGER NOT NULL,
  count REAL NOT NULL,
  sum REAL NOT NULL,
  min REAL NOT NULL,
  max REAL NOT NULL,
  PRIMARY KEY (series_id, level, t_s)
) WITHOUT ROWID;
CREATE TABLE rolled (level INTEGER PRIMARY KEY, until_s INTEGER NOT NULL);
CREATE TABLE marks (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
)sql",
                                  R"sql(
ALTER TABLE series ADD COLUMN last_t REAL NOT NULL DEFAULT 0;
ALTER TABLE series ADD COLUMN last_value REAL NOT NULL DEFAULT 0;
)sql"};

struct Level {
  int64_t period_s;
  int64_t kept_s;
};
constexpr int64_t kDay_s = 86'400;
// CloudWatch's.
constexpr std::array<Level, 4> kLevels{
    {{1, 3 * 3600}, {60, 15 * kDay_s}, {300, 63 * kDay_s}, {3600, 455 * kDay_s}}};
constexpr size_t kCoarsest = kLevels.size() - 1;

constexpr size_t kNameBytesMax = 255;
constexpr size_t kDimensionValueBytesMax = 1024;
constexpr size_t kDimensionsMax = 30;

int64_t floor_to(int64_t t_s, int64_t period_s) {
  const int64_t rest = t_s % period_s;
  return t_s - (rest < 0 ? rest + period_s : rest);
}

Status check_key(const SeriesKey& key) {
  const auto check = [](std::string_view what, const std::string& text, size_t max) -> Status {
    if (!text.empty() && text.size() <= max) return Ok{};
    return Error{Code::kInvalidArgument,
                 fmt::format("{} '{}': 1 to {} bytes", what, text.substr(0, 40), max)};
  };
  YARD_TRY(check("namespace", key.space, kNameBytesMax));
  YARD_TRY(check("metric name", key.name, kNameBytesMax));
  if (key.dimensions.size() > kDimensionsMax)
    return Error{Code::kInvalidArgument, fmt::format("{}: {} dimensions, at most {}", key.name,
                                                     key.dimensions.size(), kDimensionsMax)};
  for (const auto& [name, value] : key.dimensions) {
    YARD_TRY(check("dimension", name, kNameBytesMax));
    YARD_TRY(check("value of a dimension", value, kDimensionValueBytesMax));
  }
  return Ok{};
}

Status check_sample(const MetricSample& sample) {
  YARD_TRY(check_key(sample.key));
  const Summary& values = sample.values;
  for (double each : {sample.t, values.count, values.sum, values.min, values.max})
    if (!std::isfinite(each))
      return Error{Code::kInvalidArgument, fmt::format("{}: not a number", sample.key.name)};
  if (values.count > 0 && values.min <= values.max) return Ok{};
  return Error{Code::kInvalidArgument,
               fmt::format("{}: {} values between {} and {}", sample.key.name, values.count,
                           values.min, values.max)};
}

std::string to_text(const std::map<std::string, std::string>& dimensions) {
  return Json(dimensions).dump(-1, ' ', false, Json::error_handler_t::replace);
}

Result<std::map<std::string, std::string>> from_text(const std::string& text) {
  const Json json = Json::parse(text, nullptr, false);
  std::map<std::string, std::string> dimensions;
  if (!json.is_object()) return Error{Code::kCorrupt, "metrics: dimensions are no object"};
  for (const auto& [name, value] : json.items())
    if (value.is_string()) dimensions[name] = value.get<std::string>();
  return dimensions;
}

bool matches(const SeriesKey& key, const SeriesFilter& filter) {
  for (const auto& [name, value] : filter.dimensions) {
    const auto found = key.dimensions.find(name);
    if (found == key.dimensions.end() || (value && *value != found->second)) return false;
  }
  return true;
}

}  // namespace

void Summary::add(const Summary& other) {
  if (other.count <= 0) return;
  if (count <= 0) {
    *this = other;
    return;
  }
  count += other.count;
  sum += other.sum;
  min = std::min(min, other.min);
  max = std::max(max, other.max);
}

struct MetricStore::Impl {
  Impl(Connection connection, Clock& used) : db(std::move(connection)), clock(used) {}

  int64_t now_s() const {
    return std::chrono::duration_cast<std::chrono::seconds>(clock.wall_now().time_since_epoch())
        .count();
  }

  Status load_rolled() {
    YARD_ASSIGN(const auto rows, db.cached("SELECT level, until_s FROM rolled"));
    while (true) {
      YARD_ASSIGN(const bool there, rows->step());
      if (!there) return Ok{};
      const auto level = static_cast<size_t>(rows->integer());
      const int64_t until_s = rows->integer();
      if (level <= kCoarsest) rolled_until_s[level] = until_s;
    }
  }

  Result<std::optional<int64_t>> find_series(const SeriesKey& key) {
    YARD_ASSIGN(const auto row, db.cached("SELECT id FROM series WHERE space = ? AND name = ? AND "
                                          "dimensions = ?"));
    row->bind(key.space).bind(key.name).bind(to_text(key.dimensions));
    YARD_ASSIGN(const bool found, row->step());
    return found ? std::optional(row->integer()) : std::nullopt;
  }

  Result<int64_t> series_of(const MetricSample& sample, int64_t t_s) {
    YARD_ASSIGN(const auto row,
                db.cached("INSERT INTO series (space, name, dimensions, unit, last_s, last_t, "
                          "last_value) VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET "
                          "last_s = max(last_s, excluded.last_s), unit = excluded.unit, "
                          "last_value = iif(excluded.last_t >= last_t, excluded.last_value, "
                          "last_value), last_t = max(last_t, excluded.last_t) RETURNING id"));
    row->bind(sample.key.space).bind(sample.key.name).bind(to_text(sample.key.dimensions));
    row->bind(sample.unit.empty() ? "None" : sample.unit).bind(t_s);
    row->bind(sample.t).bind(sample.values.mean());
    YARD_ASSIGN([[maybe_unused]] const bool there, row->step());
    const int64_t id = row->integer();
    YARD_TRY(row->run());
    return id;
  }

  Status add_point(int64_t series, size_t level, int64_t t_s, const Summary& values) {
    YARD_ASSIGN(const auto row,
                db.cached("INSERT INTO points VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE "
                          "SET count = count + excluded.count, sum = sum + excluded.sum, "
                          "min = min(min, excluded.min), max = max(max, excluded.max)"));
    row->bind(series).bind(static_cast<int64_t>(level));
    row->bind(floor_to(t_s, kLevels[level].period_s));
    return row->bind(values.count).bind(values.sum).bind(values.min).bind(values.max).run();
  }

  // Into the finest level that still keeps its time, and into those that have been rolled up past
  // it already.
  Status put_one(const MetricSample& sample, int64_t now) {
    const auto t_s = static_cast<int64_t>(std::floor(sample.t));
    if (t_s < now - kLevels[kCoarsest].kept_s) return Ok{};
    YARD_ASSIGN(const int64_t series, series_of(sample, t_s));
    bool in_level_below = false;
    for (size_t level = 0; level <= kCoarsest; ++level) {
      const bool kept = t_s >= now - kLevels[level].kept_s;
      const bool comes_by_itself = in_level_below && t_s >= rolled_until_s[level];
      if (kept && !comes_by_itself) YARD_TRY(add_point(series, level, t_s, sample.values));
      in_level_below = kept;
    }
    return Ok{};
  }

  // What is over goes from each level to the next.
  Status roll_up(int64_t now) {
    for (size_t level = 1; level <= kCoarsest; ++level) {
      const int64_t until_s = floor_to(now, kLevels[level].period_s);
      if (until_s <= rolled_until_s[level]) continue;
      YARD_ASSIGN(const auto roll,
                  db.cached("INSERT INTO points SELECT series_id, ?1, t_s - t_s % ?2 AS bucket, "
                            "sum(count), sum(sum), min(min), max(max) FROM points JOIN series ON "
                            "series.id = series_id WHERE last_s >= ?3 AND level = ?1 - 1 AND "
                            "t_s >= ?3 AND t_s < ?4 GROUP BY series_id, bucket "
                            "ON CONFLICT DO UPDATE SET count = count + excluded.count, "
                            "sum = sum + excluded.sum, min = min(min, excluded.min), "
                            "max = max(max, excluded.max)"));
      YARD_TRY(roll->bind(static_cast<int64_t>(level))
                   .bind(kLevels[level].period_s)
                   .bind(rolled_until_s[level])
                   .bind(until_s)
                   .run());
      YARD_ASSIGN(const auto mark, db.cached("INSERT OR REPLACE INTO rolled VALUES (?, ?)"));
      YARD_TRY(mark->bind(static_cast<int64_t>(level)).bind(until_s).run());
      if (level == kCoarsest) YARD_TRY(drop_old(now));
      rolled_until_s[level] = until_s;
    }
    return Ok{};
  }

  Status drop_old(int64_t now) {
    for (size_t level = 0; level <= kCoarsest; ++level) {
      YARD_ASSIGN(
          const auto drop,
          db.cached("DELETE FROM points WHERE (series_id, level, t_s) IN (SELECT series_id, "
                    "level, t_s FROM series JOIN points ON series_id = series.id WHERE "
                    "level = ? AND t_s < ?)"));
      YARD_TRY(drop->bind(static_cast<int64_t>(level)).bind(now - kLevels[level].kept_s).run());
    }
    YARD_ASSIGN(const auto forget, db.cached("DELETE FROM series WHERE last_s < ?"));
    return forget->bind(now - kLevels[kCoarsest].kept_s).run();
  }

  // Points of [from, to): of this level as far as it was rolled up, of the finer ones after that.
  Status collect(int64_t series, size_t level, int64_t from, int64_t to,
                 std::vector<MetricPoint>& points) {
    const int64_t cut = level == 0 ? to : std::clamp(rolled_until_s[level], from, to);
    YARD_ASSIGN(auto rows,
                db.prepare("SELECT t_s, count, sum, min, max FROM points WHERE series_id = ? AND "
                           "level = ? AND t_s >= ? AND t_s < ? ORDER BY t_s"));
    rows.bind(series).bind(static_cast<int64_t>(level));
    rows.bind(floor_to(from, kLevels[level].period_s)).bind(cut);
    while (true) {
      YARD_ASSIGN(const bool there, rows.step());
      if (!there) break;
      MetricPoint point;
      point.t_s = rows.integer();
      point.values.count = rows.real();
      point.values.sum = rows.real();
      point.values.min = rows.real();
      point.values.max = rows.real();
      points.push_back(point);
    }
    return cut < to ? collect(series, level - 1, cut, to, points) : Status(Ok{});
  }

  // From `level` on the coarser, for what is too old for it.
  Result<std::vector<MetricPoint>> collect_kept(int64_t series, size_t level, int64_t from,
                                                int64_t to) {
    std::vector<MetricPoint> points;
    const int64_t now = now_s();
    int64_t end = to;
    std::vector<std::vector<MetricPoint>> parts;
    for (; level <= kCoarsest && from < end; ++level) {
      int64_t begin = from;
      // Whole buckets of the next level.
      if (level < kCoarsest && from < now - kLevels[level].kept_s)
        begin = std::min(end, floor_to(now - kLevels[level].kept_s, kLevels[level + 1].period_s) +
                                  kLevels[level + 1].period_s);
      parts.emplace_back();
      if (begin < end) YARD_TRY(collect(series, level, begin, end, parts.back()));
      end = begin;
    }
    for (auto part = parts.rbegin(); part != parts.rend(); ++part)
      points.insert(points.end(), part->begin(), part->end());
    return points;
  }

  std::mutex mutex;
  Connection db;
  Clock& clock;
  std::array<int64_t, kLevels.size()> rolled_until_s{};
};

MetricStore::MetricStore(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
MetricStore::MetricStore(MetricStore&&) noexcept = default;
MetricStore& MetricStore::operator=(MetricStore&&) noexcept = default;
MetricStore::~MetricStore() = default;

Result<MetricStore> MetricStore::open(const MetricStoreOptions& options) {
  YARD_ASSIGN(
      Connection db,
      sqlite::open_database(options.path, {.steps = kSteps, .application_id = kApplicationId}, {}));
  auto impl = std::make_unique<Impl>(std::move(db), *options.clock);
  YARD_TRY(impl->load_rolled());
  return MetricStore(std::move(impl));
}

Status MetricStore::put(const std::vector<MetricSample>& samples,
                        const std::map<std::string, int64_t>& marks) {
  for (const MetricSample& sample : samples) YARD_TRY(check_sample(sample));
  std::lock_guard lock(impl_->mutex);
  const auto rolled_before = impl_->rolled_until_s;
  const auto put_all = [&]() -> Status {
    YARD_ASSIGN(Transaction transaction, Transaction::begin(impl_->db));
    YARD_TRY(impl_->load_rolled());  // another process may have put something
    const int64_t now = impl_->now_s();
    YARD_TRY(impl_->roll_up(now));
    for (const MetricSample& sample : samples) YARD_TRY(impl_->put_one(sample, now));
    for (const auto& [name, value] : marks) {
      YARD_ASSIGN(const auto set, impl_->db.cached("INSERT OR REPLACE INTO marks VALUES (?, ?)"));
      YARD_TRY(set->bind(name).bind(value).run());
    }
    return transaction.commit();
  };
  Status put = put_all();
  if (!put) impl_->rolled_until_s = rolled_before;
  return put;
}

Result<std::optional<LastValue>> MetricStore::last(const SeriesKey& key) {
  std::lock_guard lock(impl_->mutex);
  YARD_ASSIGN(const auto row, impl_->db.cached("SELECT last_t, last_value FROM series WHERE "
                                               "space = ? AND name = ? AND dimensions = ?"));
  row->bind(key.space).bind(key.name).bind(to_text(key.dimensions));
  YARD_ASSIGN(const bool found, row->step());
  if (!found) return std::optional<LastValue>();
  LastValue last;
  last.t = row->real();
  last.value = row->real();
  // Written by a version that did not keep it.
  return last.t > 0 ? std::optional(last) : std::optional<LastValue>();
}

Result<std::optional<int64_t>> MetricStore::mark(const std::string& name) {
  std::lock_guard lock(impl_->mutex);
  YARD_ASSIGN(const auto row, impl_->db.cached("SELECT value FROM marks WHERE name = ?"));
  row->bind(name);
  YARD_ASSIGN(const bool found, row->step());
  return found ? std::optional(row->integer()) : std::nullopt;
}

Status MetricStore::forget_marks(const std::string& prefix) {
  std::lock_guard lock(impl_->mutex);
  YARD_ASSIGN(const auto forget,
              impl_->db.cached("DELETE FROM marks WHERE substr(name, 1, length(?1)) = ?1"));
  return forget->bind(prefix).run();
}

Result<std::vector<MetricPoint>> MetricStore::read(const SeriesQuery& query) {
  if (query.period_s < 1)
    return Error{Code::kInvalidArgument, fmt::format("period of {} s", query.period_s)};
  std::lock_guard lock(impl_->mutex);
  YARD_TRY(impl_->load_rolled());
  YARD_ASSIGN(const auto series, impl_->find_series(query.key));
  if (!series) return std::vector<MetricPoint>{};
  size_t level = 0;
  for (size_t i = 0; i <= kCoarsest; ++i)
    if (query.period_s % kLevels[i].period_s == 0) level = i;
  const int64_t from = floor_to(query.start_s, query.period_s);
  YARD_ASSIGN(const auto parts, impl_->collect_kept(*series, level, from, query.end_s));
  std::vector<MetricPoint> points;
  for (const MetricPoint& part : parts) {
    const int64_t t_s = floor_to(part.t_s, query.period_s);
    if (points.empty() || points.back().t_s != t_s) points.push_back({.t_s = t_s, .values = {}});
    points.back().values.add(part.values);
  }
  return points;
}

Result<std::optional<double>> MetricStore::percentile(const SeriesQuery& range, double percent) {
  if (!(percent >= 0 && percent <= 100))
    return Error{Code::kInvalidArgument, fmt::format("percentile {}", percent)};
  std::lock_guard lock(impl_->mutex);
  YARD_TRY(impl_->load_rolled());
  YARD_ASSIGN(const auto series, impl_->find_series(range.key));
  if (!series) return std::optional<double>();
  YARD_ASSIGN(auto parts, impl_->collect_kept(*series, 0, range.start_s, range.end_s));
  if (parts.empty()) return std::optional<double>();
  std::sort(parts.begin(), parts.end(), [](const MetricPoint& a, const MetricPoint& b) {
    return a.values.mean() < b.values.mean();
  });
  double total = 0;
  for (const MetricPoint& part : parts) total += part.values.count;
  double passed = 0;
  for (const MetricPoint& part : parts) {
    passed += part.values.count;
    if (passed >= total * percent / 100) return std::optional(part.values.mean());
  }
  return std::optional(parts.back().values.mean());
}

Result<std::vector<SeriesInfo>> MetricStore::list(const SeriesFilter& filter) {
  std::lock_guard lock(impl_->mutex);
  YARD_ASSIGN(const auto rows,
              impl_->db.cached("SELECT space, name, dimensions, unit, last_s FROM series WHERE "
                               "(?1 IS NULL OR space = ?1) AND (?2 IS NULL OR name = ?2) AND "
                               "last_s >= ?3 ORDER BY space, name, dimensions"));
  filter.space ? rows->bind(*filter.space) : rows->bind_null();
  filter.name ? rows->bind(*filter.name) : rows->bind_null();
  rows->bind(filter.active_since_s.value_or(std::numeric_limits<int64_t>::min()));
  std::vector<SeriesInfo> found;
  while (true) {
    YARD_ASSIGN(const bool there, rows->step());
    if (!there) return found;
    SeriesInfo info;
    info.key.space = rows->text();
    info.key.name = rows->text();
    YARD_ASSIGN(info.key.dimensions, from_text(rows->text()));
    info.unit = rows->text();
    info.last_s = rows->integer();
    if (matches(info.key, filter)) found.push_back(std::move(info));
  }
}

}  // namespace yard::metrics
