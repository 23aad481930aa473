// The changes of a ledger: as entries, and what these do to the tables.
#include <fmt/format.h>

#include <functional>

#include "base/ids.h"
#include "prep/ledger_internal.h"

namespace yard::prep {
namespace {

constexpr std::string_view kWhat = "ledger entry";

Json to_json(const PackedSample& sample) {
  return Json::array({sample.object.key, sample.object.etag, sample.sample_key, sample.sha256,
                      sample.phash, sample.contributor, sample.licence});
}

Json to_json(const std::vector<DroppedObject>& dropped) {
  Json list = Json::array();
  for (const DroppedObject& each : dropped)
    list.push_back({each.object.key, each.object.etag, each.reason});
  return list;
}

Result<std::string> text_at(const Json& list, size_t index) {
  if (!list.is_array() || index >= list.size() || !list[index].is_string())
    return Error{Code::kCorrupt, fmt::format("{}: a row is malformed", kWhat)};
  return list[index].get<std::string>();
}

class Applier {
 public:
  Applier(sqlite::Connection& connection, const Json& entry) : db_(connection), entry_(entry) {}

  Status apply() {
    YARD_ASSIGN(const std::string op, json_field<std::string>(entry_, "op", kWhat));
    if (op == "begin") return begin();
    if (op == "confirm") return confirm();
    if (op == "forget") return forget();
    if (op == "drop") return add_dropped(std::nullopt);
    if (op == "reject") return add_rejected();
    if (op == "withdraw") return withdraw();
    if (op == "rewritten") return rewritten();
    if (op == "manifest") return manifest();
    return Error{Code::kCorrupt,
                 fmt::format("{}: unknown '{}'; a newer version wrote it", kWhat, op)};
  }

 private:
  Result<int64_t> number(const char* key) { return json_field<int64_t>(entry_, key, kWhat); }
  Result<std::string> text(const char* key) { return json_field<std::string>(entry_, key, kWhat); }
  Status mark_changed() { return db_.execute("UPDATE manifest SET change = change + 1"); }

  Status begin() {
    YARD_ASSIGN(const int64_t shard, number("number"));
    YARD_ASSIGN(const std::string key, text("key"));
    YARD_ASSIGN(const Json samples, json_field<Json>(entry_, "samples", kWhat));
    YARD_ASSIGN(auto insert,
                db_.cached("INSERT INTO shards (number, key, sample_count) VALUES (?, ?, ?)"));
    YARD_TRY(insert->bind(shard).bind(key).bind(int64_t(samples.size())).run());
    for (const Json& sample : samples) YARD_TRY(add_sample(shard, sample));
    return add_dropped(shard);
  }

  Status add_sample(int64_t shard, const Json& sample) {
    YARD_ASSIGN(auto insert,
                db_.cached("INSERT INTO objects (key, etag, shard, sample_key, sha256, phash, "
                           "contributor, licence) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"));
    std::vector<std::string> texts;
    for (const size_t index : {0U, 1U, 2U, 3U, 5U, 6U}) {
      YARD_ASSIGN(std::string value, text_at(sample, index));
      texts.push_back(std::move(value));
    }
    if (!sample[4].is_number_integer())
      return Error{Code::kCorrupt, fmt::format("{}: a hash is no number", kWhat)};
    insert->bind(texts[0]).bind(texts[1]).bind(shard).bind(texts[2]).bind(texts[3]);
    insert->bind(int64_t(sample[4].get<uint64_t>()));
    return insert->bind(texts[4]).bind(texts[5]).run();
  }

  Status add_dropped(std::optional<int64_t> shard) {
    YARD_ASSIGN(const Json dropped, json_field_or<Json>(entry_, "dropped", Json::array(), kWhat));
    for (const Json& each : dropped) {
      YARD_ASSIGN(const std::string key, text_at(each, 0));
      YARD_ASSIGN(const std::string etag, text_at(each, 1));
      YARD_ASSIGN(const std::string reason, text_at(each, 2));
      YARD_ASSIGN(auto insert,
                  db_.cached("INSERT INTO objects (key, etag, reason, shard) VALUES (?, ?, ?, ?)"));
      insert->bind(key).bind(etag).bind(reason);
      if (shard)
        insert->bind(*shard);
      else
        insert->bind_null();
      YARD_TRY(insert->run());
    }
    return Ok{};
  }

  Status confirm() {
    YARD_ASSIGN(const int64_t shard, number("number"));
    YARD_ASSIGN(const std::string etag, text("etag"));
    YARD_ASSIGN(const int64_t size_bytes, number("size_bytes"));
    YARD_ASSIGN(auto update, db_.cached("UPDATE shards SET is_confirmed = 1, etag = ?, "
                                        "size_bytes = ? WHERE number = ?"));
    YARD_TRY(update->bind(etag).bind(size_bytes).bind(shard).run());
    return mark_changed();
  }

  Status forget() {
    YARD_ASSIGN(const int64_t shard, number("number"));
    for (const char* sql :
         {"DELETE FROM objects WHERE shard = ?", "DELETE FROM shards WHERE number = ?"}) {
      YARD_ASSIGN(auto statement, db_.cached(sql));
      YARD_TRY(statement->bind(shard).run());
    }
    return Ok{};
  }

  Status add_rejected() {
    YARD_ASSIGN(const Json objects, json_field<Json>(entry_, "objects", kWhat));
    for (const Json& each : objects) {
      YARD_ASSIGN(const std::string key, text_at(each, 0));
      YARD_ASSIGN(const std::string etag, text_at(each, 1));
      YARD_ASSIGN(auto insert, db_.cached("INSERT OR IGNORE INTO rejected VALUES (?, ?)"));
      YARD_TRY(insert->bind(key).bind(etag).run());
    }
    return Ok{};
  }

  Status withdraw() {
    YARD_ASSIGN(const std::string contributor, text("contributor"));
    for (const char* sql :
         {"INSERT OR IGNORE INTO withdrawn VALUES (?)",
          "UPDATE shards SET is_stale = 1 WHERE number IN (SELECT shard FROM objects WHERE "
          "contributor = ? AND sample_key != '' AND is_removed = 0)",
          "UPDATE objects SET is_removed = 1 WHERE contributor = ? AND sample_key != ''"}) {
      YARD_ASSIGN(auto statement, db_.cached(sql));
      YARD_TRY(statement->bind(contributor).run());
    }
    return Ok{};
  }

  Status rewritten() {
    YARD_ASSIGN(const int64_t shard, number("number"));
    YARD_ASSIGN(const std::string etag, text("etag"));
    YARD_ASSIGN(const int64_t size_bytes, number("size_bytes"));
    YARD_ASSIGN(const int64_t sample_count, number("sample_count"));
    YARD_ASSIGN(auto update, db_.cached("UPDATE shards SET is_stale = 0, etag = ?, size_bytes = ?, "
                                        "sample_count = ? WHERE number = ?"));
    YARD_TRY(update->bind(etag).bind(size_bytes).bind(sample_count).bind(shard).run());
    return mark_changed();
  }

  Status manifest() {
    YARD_ASSIGN(const int64_t version, number("version"));
    YARD_ASSIGN(const int64_t change, number("change"));
    YARD_ASSIGN(auto update, db_.cached("UPDATE manifest SET version = ?, published = ?"));
    return update->bind(version).bind(change).run();
  }

  sqlite::Connection& db_;
  const Json& entry_;
};

}  // namespace

Status Ledger::Impl::apply(const Json& entry) {
  auto applied = Applier(connection, entry).apply();
  if (!applied && applied.error().code == Code::kInvalidArgument && journal != nullptr)
    return Error{Code::kCorrupt, "the ledger's journal: " + applied.error().message};
  return applied;
}

Status Ledger::Impl::catch_up() {
  if (journal == nullptr) return Ok{};
  int64_t position = 0;
  {
    YARD_ASSIGN(auto select, query("SELECT position FROM journal"));
    YARD_TRY(select->step());
    position = select->integer();
  }
  YARD_ASSIGN(const std::vector<Json> entries, journal->read_after(position));
  if (entries.empty()) return Ok{};
  YARD_ASSIGN(auto transaction, sqlite::Transaction::begin(connection));
  for (const Json& entry : entries) {
    // Since this process has it open; what came before was told by a run of before.
    const bool is_own = entry.value("by", "").starts_with(session);
    if (is_open && !is_own && entry.value("writer", int64_t{-1}) == writer)
      return Error{Code::kUnavailable,
                   fmt::format("another run is at work as writer {} of this ledger", writer)};
    YARD_TRY(apply(entry));
  }
  {
    YARD_ASSIGN(auto update, query("UPDATE journal SET position = position + ?"));
    YARD_TRY(update->bind(std::ssize(entries)).run());
  }
  return transaction.commit();
}

Result<bool> Ledger::Impl::change(Json entry, const Fits& fits) {
  entry["writer"] = writer;
  entry["by"] = fmt::format("{}-{}", session, ++entry_count);
  while (true) {
    YARD_TRY(catch_up());
    YARD_ASSIGN(auto transaction, sqlite::Transaction::begin(connection));
    if (fits) {
      YARD_ASSIGN(const bool is_fitting, fits());
      if (!is_fitting) return false;
    }
    if (journal != nullptr) {
      int64_t position = 0;
      {
        YARD_ASSIGN(auto select, query("SELECT position FROM journal"));
        YARD_TRY(select->step());
        position = select->integer();
      }
      YARD_ASSIGN(const bool is_first, journal->append(position, entry));
      if (!is_first) continue;
      YARD_TRY(connection.execute("UPDATE journal SET position = position + 1"));
    }
    YARD_TRY(apply(entry));
    YARD_TRY(transaction.commit());
    return true;
  }
}

Result<bool> Ledger::Impl::has_row(std::string_view sql, int64_t number) {
  YARD_ASSIGN(auto select, query(sql));
  return select->bind(number).step();
}

Status Ledger::refresh() {
  return impl_->catch_up();
}

Result<bool> Ledger::begin_shard(const ShardRecord& shard, const std::vector<PackedSample>& samples,
                                 const std::vector<DroppedObject>& dropped, const Fits& fits) {
  Json list = Json::array();
  for (const PackedSample& sample : samples) list.push_back(to_json(sample));
  return impl_->change({{"op", "begin"},
                        {"number", shard.number},
                        {"key", shard.key},
                        {"samples", std::move(list)},
                        {"dropped", to_json(dropped)}},
                       fits);
}

Result<bool> Ledger::confirm_shard(const ShardRecord& shard) {
  return impl_->change(
      {{"op", "confirm"},
       {"number", shard.number},
       {"etag", shard.etag},
       {"size_bytes", shard.size_bytes}},
      [&] { return impl_->has_row("SELECT 1 FROM shards WHERE number = ?", shard.number); });
}

Result<bool> Ledger::forget_shard(int64_t shard_number) {
  return impl_->change({{"op", "forget"}, {"number", shard_number}}, [&] {
    return impl_->has_row("SELECT 1 FROM shards WHERE number = ? AND is_confirmed = 0",
                          shard_number);
  });
}

Result<bool> Ledger::add_dropped(const std::vector<DroppedObject>& dropped, const Fits& fits) {
  return impl_->change({{"op", "drop"}, {"dropped", to_json(dropped)}}, fits);
}

Status Ledger::add_rejected(const std::vector<ObjectVersion>& objects) {
  Json list = Json::array();
  for (const ObjectVersion& each : objects) list.push_back({each.key, each.etag});
  YARD_TRY(impl_->change({{"op", "reject"}, {"objects", std::move(list)}}, {}));
  return Ok{};
}

Result<std::vector<ShardRecord>> Ledger::withdraw(const std::string& contributor) {
  YARD_TRY(impl_->change({{"op", "withdraw"}, {"contributor", contributor}}, {}));
  return impl_->shards_where("is_stale = 1 AND is_confirmed = 1");
}

Status Ledger::rewritten(const ShardRecord& shard) {
  YARD_TRY(impl_->change({{"op", "rewritten"},
                          {"number", shard.number},
                          {"etag", shard.etag},
                          {"size_bytes", shard.size_bytes},
                          {"sample_count", shard.sample_count}},
                         {}));
  return Ok{};
}

Result<bool> Ledger::manifest_published(int64_t version) {
  return impl_->change(
      {{"op", "manifest"}, {"version", version}, {"change", impl_->manifest_change}},
      [&] { return impl_->has_row("SELECT 1 FROM manifest WHERE version < ?", version); });
}

}  // namespace yard::prep
