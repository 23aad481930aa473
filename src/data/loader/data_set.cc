#include <fmt/format.h>

#include <algorithm>

#include "base/clock.h"
#include "base/log.h"
#include "loader/data_set_internal.h"
#include "shards/sample_name.h"
#include "storage/request_deadline.h"
#include "storage/transfer_pool.h"

namespace yard::loader {
namespace {

using shards::ShardReader;

// Of the indexes that are not kept, one at least is in memory; this many bytes in all.
constexpr uint64_t kRecentShare = 4;  // a quarter of index_bytes_max

// "png, jpg" -> {"png", "jpg"}
std::vector<std::string> split_list(std::string_view list) {
  std::vector<std::string> names;
  while (!list.empty()) {
    const size_t end = std::min(list.find_first_of(", "), list.size());
    if (end > 0) names.push_back(shards::to_lower(list.substr(0, end)));
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return names;
}

}  // namespace

DataSet::DataSet(const LoaderOptions& options)
    : index_bytes_max_(options.index_bytes_max),
      image_members_(split_list(options.image_members)),
      caption_member_(shards::to_lower(options.caption_member)),
      is_raw_(options.raw) {}

Result<std::unique_ptr<DataSet>> DataSet::open(storage::ObjectStore& store,
                                               const LoaderOptions& options) {
  auto set = std::unique_ptr<DataSet>(new DataSet(options));
  std::vector<SourceOptions> sources = options.sources;
  if (sources.empty()) sources.push_back({nullptr, options.shards, 1});
  for (const SourceOptions& source : sources)
    YARD_TRY(set->add_source(source, source.store != nullptr ? *source.store : store, options));
  YARD_TRY(set->open_shards(options));
  for (size_t i = 0; i < sources.size(); ++i) {
    const auto end_of = [&](size_t shard_count) {
      return shard_count == 0 ? 0 : set->shards_[shard_count - 1].end;
    };
    const uint64_t begin = i == 0 ? 0 : end_of(set->source_ends_[i - 1]);
    set->sources_.push_back({end_of(set->source_ends_[i]) - begin, sources[i].weight});
  }
  if (sources.size() == 1) set->sources_.clear();
  return set;
}

Status DataSet::add_source(const SourceOptions& source, storage::ObjectStore& store,
                           const LoaderOptions& options) {
  std::vector<std::string> keys = source.shards;
  if (keys.empty()) return Error{Code::kInvalidArgument, "no shards were given"};
  std::ranges::sort(keys);
  if (const auto twice = std::ranges::adjacent_find(keys); twice != keys.end())
    return Error{Code::kInvalidArgument, fmt::format("shard '{}' is given twice", *twice)};
  is_remote_ |= store.speed().is_remote;
  if (options.mode == ShardMode::kIndependent && keys.size() < size_t(options.world_size))
    return Error{Code::kInvalidArgument,
                 fmt::format("{} shards cannot be dealt to {} ranks; make more and smaller ones "
                             "('yard shards repack'), or let the ranks share them (mode global)",
                             keys.size(), options.world_size)};
  for (size_t i = 0; i < keys.size(); ++i) {
    const bool is_ours = options.mode == ShardMode::kGlobal ||
                         i % size_t(options.world_size) == size_t(options.rank);
    if (is_ours) shards_.push_back({.store = &store, .key = std::move(keys[i])});
  }
  source_ends_.push_back(shards_.size());
  return Ok{};
}

// Many at once: each costs some round trips to a remote store.
Status DataSet::open_shards(const LoaderOptions& options) {
  std::vector<uint64_t> counts(shards_.size());
  std::optional<std::pair<size_t, Error>> failed;  // the first in order
  {
    storage::TransferPool pool({.transfer_count_first = is_remote_ ? 16 : options.thread_count,
                                .transfer_count_max = is_remote_ ? 64 : options.thread_count});
    for (size_t i = 0; i < shards_.size(); ++i)
      pool.push(0, [this, i, &options, &counts, &failed]() -> Result<uint64_t> {
        {
          const std::lock_guard lock(mutex_);
          if (failed && failed->first < i) return failed->second;  // it is the one that is told
        }
        const storage::RequestDeadline deadline(Clock::real().now() + options.store_patience);
        auto opened = open_shard(shards_[i], counts[i]);
        if (opened) return uint64_t{0};
        const std::lock_guard lock(mutex_);
        if (!failed || i < failed->first) failed.emplace(i, opened.error());
        return std::move(opened).error();
      });
  }
  if (failed) return std::move(failed->second);
  uint64_t end = 0;
  for (size_t i = 0; i < shards_.size(); ++i) shards_[i].end = end += counts[i];
  if (kept_bytes_ > index_bytes_max_)
    log_info("the indexes of {} shards are over {} MiB; they are read when they are needed",
             shards_.size(), index_bytes_max_ >> 20);
  return Ok{};
}

Status DataSet::open_shard(Shard& shard, uint64_t& sample_count) {
  bool is_full = false;
  {
    const std::lock_guard lock(mutex_);
    is_full = kept_bytes_ > index_bytes_max_;
  }
  if (is_full) {
    auto count = shards::read_sample_count(*shard.store, shard.key);
    if (count) {
      sample_count = *count;
      return Ok{};
    }
    if (count.error().code != Code::kNotFound) return std::move(count).error();
  }
  YARD_ASSIGN(auto opened, ShardReader::open(*shard.store, shard.key));
  sample_count = opened.index().sample_count();
  const std::lock_guard lock(mutex_);
  // One without sidecar is kept in any case: it would have to be read whole again.
  if (kept_bytes_ > index_bytes_max_ && opened.index_source() == shards::IndexSource::kSidecar)
    return Ok{};
  kept_bytes_ += opened.index().memory_bytes();
  shard.etag = opened.shard().etag;
  shard.reader = std::make_shared<const ShardReader>(std::move(opened));
  shard.is_kept = true;
  return Ok{};
}

size_t DataSet::shard_of(uint64_t sample_id) const {
  YARD_CHECK(sample_id < sample_count());
  return size_t(std::ranges::upper_bound(shards_, sample_id, {}, &Shard::end) - shards_.begin());
}

Result<std::shared_ptr<const ShardReader>> DataSet::reader_of(size_t number) {
  {
    const std::lock_guard lock(mutex_);
    Shard& shard = shards_[number];
    if (shard.reader != nullptr) {
      if (!shard.is_kept) recent_.splice(recent_.begin(), recent_, shard.recent);
      return shard.reader;
    }
  }
  const Shard& shard = shards_[number];
  YARD_ASSIGN(auto opened, ShardReader::open(*shard.store, shard.key));
  auto reader = std::make_shared<const ShardReader>(std::move(opened));
  YARD_TRY(remember(number, reader));
  return reader;
}

Status DataSet::remember(size_t number, const std::shared_ptr<const ShardReader>& reader) {
  const std::lock_guard lock(mutex_);
  Shard& shard = shards_[number];
  const uint64_t count = shard.end - (number == 0 ? 0 : shards_[number - 1].end);
  const bool is_same = shard.etag.empty() || shard.etag == reader->shard().etag;
  if (reader->index().sample_count() != count || !is_same)
    return Error{Code::kCorrupt,
                 fmt::format("{}/{}: changed while it was in use", shard.store->url(), shard.key)};
  if (shard.reader != nullptr) return Ok{};  // another thread was faster
  shard.etag = reader->shard().etag;
  shard.reader = reader;
  recent_.push_front(number);
  shard.recent = recent_.begin();
  recent_bytes_ += reader->index().memory_bytes();
  while (recent_.size() > 1 && recent_bytes_ > index_bytes_max_ / kRecentShare) {
    Shard& oldest = shards_[recent_.back()];
    recent_bytes_ -= oldest.reader->index().memory_bytes();
    oldest.reader.reset();
    recent_.pop_back();
  }
  return Ok{};
}

Result<DataSet::Place> DataSet::place(uint64_t sample_id) {
  const size_t number = shard_of(sample_id);
  Place place{.sample = sample_id - (number == 0 ? 0 : shards_[number - 1].end)};
  YARD_ASSIGN(place.shard, reader_of(number));
  const auto& index = place.shard->index();
  if (!caption_member_.empty()) place.caption = index.find(place.sample, caption_member_);
  for (const std::string& extension : image_members_) {
    place.image = index.find(place.sample, extension);
    if (place.image != nullptr) break;
  }
  return place;
}

std::string DataSet::key(const Place& place) const {
  return fmt::format("{}/{}", place.shard->shard().key, place.shard->index().key(place.sample));
}

Status DataSet::check(const Place& place) const {
  const bool has_caption = place.caption != nullptr || caption_member_.empty();
  if (is_raw_ || (place.image != nullptr && has_caption)) return Ok{};
  std::vector<std::string_view> present;
  for (const auto& member : place.shard->index().members(place.sample))
    present.push_back(place.shard->index().extension(member));
  const std::string wanted = place.image == nullptr
                                 ? fmt::format("picture ({})", fmt::join(image_members_, ", "))
                                 : fmt::format("caption ({})", caption_member_);
  return Error{Code::kCorrupt,
               fmt::format("{}: no {}; its members are: {}", place.shard->where(place.sample),
                           wanted, fmt::join(present, ", "))};
}

Status DataSet::check_all() {
  for (size_t number = 0; number < shards_.size(); ++number) {
    if (!shards_[number].is_kept) continue;
    const uint64_t begin = number == 0 ? 0 : shards_[number - 1].end;
    for (uint64_t id = begin; id < shards_[number].end; ++id) {
      YARD_ASSIGN(const Place at, place(id));
      YARD_TRY(check(at));
    }
  }
  return Ok{};
}

bool DataSet::is_unchanged(uint64_t sample_id) {
  const size_t number = shard_of(sample_id);
  const auto now = shards_[number].store->head(shards_[number].key);
  const std::lock_guard lock(mutex_);
  return now && now->etag == shards_[number].etag;
}

}  // namespace yard::loader
