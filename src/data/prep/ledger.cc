#include "prep/ledger.h"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>

#include "base/file.h"
#include "sqlite/sqlite.h"

namespace yard::prep {
namespace {

// "yrdp" in ASCII.
constexpr int kApplicationId = 0x79726470;

constexpr const char* kSteps[] = {R"sql(
CREATE TABLE shards (
  number INTEGER PRIMARY KEY,
  key TEXT NOT NULL,
  etag TEXT NOT NULL DEFAULT '',
  size_bytes INTEGER NOT NULL DEFAULT 0,
  sample_count INTEGER NOT NULL,
  is_confirmed INTEGER NOT NULL DEFAULT 0,
  is_stale INTEGER NOT NULL DEFAULT 0   -- holds samples that are removed
);
CREATE TABLE objects (
  id INTEGER PRIMARY KEY,
  key TEXT NOT NULL,
  etag TEXT NOT NULL,
  shard INTEGER,                        -- of a sample; of a dropped object the one it came with
  reason TEXT NOT NULL DEFAULT '',      -- empty: packed
  is_removed INTEGER NOT NULL DEFAULT 0,
  sample_key TEXT NOT NULL DEFAULT '',
  sha256 TEXT NOT NULL DEFAULT '',
  phash INTEGER NOT NULL DEFAULT 0,
  contributor TEXT NOT NULL DEFAULT '',
  licence TEXT NOT NULL DEFAULT '',
  UNIQUE (key, etag)
);
CREATE INDEX objects_by_sha256 ON objects (sha256) WHERE sha256 != '';
CREATE UNIQUE INDEX objects_by_sample_key ON objects (sample_key) WHERE sample_key != '';
CREATE INDEX objects_by_contributor ON objects (contributor) WHERE contributor != '';
CREATE INDEX objects_by_shard ON objects (shard);
CREATE TABLE withdrawn (contributor TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE manifest (version INTEGER NOT NULL, change INTEGER NOT NULL, published INTEGER NOT NULL);
INSERT INTO manifest VALUES (0, 0, 0);
)sql"};

constexpr const char* kPackedNow = "sample_key != '' AND is_removed = 0";

// Held for as long as the ledger is open.
Result<UniqueFd> lock_beside(const std::string& path) {
  const std::string lock_path = path + ".lock";
  UniqueFd fd(::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (!fd.valid()) return errno_error(lock_path, errno);
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0)
    return Error{Code::kUnavailable, path + ": another process is at work on it"};
  return fd;
}

ShardRecord read_shard(sqlite::Statement& row) {
  ShardRecord shard;
  shard.number = row.integer();
  shard.key = row.text();
  shard.etag = row.text();
  shard.size_bytes = row.integer();
  shard.sample_count = row.integer();
  return shard;
}

}  // namespace

struct Ledger::Impl {
  Result<sqlite::CachedStatement> query(std::string_view sql) { return connection.cached(sql); }

  Status mark_changed() { return connection.execute("UPDATE manifest SET change = change + 1"); }

  Status add_sample(int64_t shard, const PackedSample& sample) {
    YARD_ASSIGN(auto insert,
                query("INSERT INTO objects (key, etag, shard, sample_key, sha256, phash, "
                      "contributor, licence) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"));
    return insert->bind(sample.object.key)
        .bind(sample.object.etag)
        .bind(shard)
        .bind(sample.sample_key)
        .bind(sample.sha256)
        .bind(int64_t(sample.phash))
        .bind(sample.contributor)
        .bind(sample.licence)
        .run();
  }

  Status add_dropped(std::optional<int64_t> shard, const std::vector<DroppedObject>& dropped) {
    for (const DroppedObject& object : dropped) {
      YARD_ASSIGN(auto insert,
                  query("INSERT INTO objects (key, etag, reason, shard) VALUES (?, ?, ?, ?)"));
      insert->bind(object.object.key).bind(object.object.etag).bind(object.reason);
      if (shard)
        insert->bind(*shard);
      else
        insert->bind_null();
      YARD_TRY(insert->run());
    }
    return Ok{};
  }

  Result<std::vector<ShardRecord>> shards_where(const std::string& condition) {
    YARD_ASSIGN(auto select, query("SELECT number, key, etag, size_bytes, sample_count FROM shards "
                                   "WHERE " +
                                   condition + " ORDER BY number"));
    std::vector<ShardRecord> shards;
    while (true) {
      YARD_ASSIGN(const bool has_row, select->step());
      if (!has_row) return shards;
      shards.push_back(read_shard(*select));
    }
  }

  Result<bool> is_there(sqlite::CachedStatement& select) { return select->step(); }

  UniqueFd lock;
  sqlite::Connection connection;
};

Ledger::Ledger(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Ledger::Ledger(Ledger&&) noexcept = default;
Ledger& Ledger::operator=(Ledger&&) noexcept = default;
Ledger::~Ledger() = default;

Result<Ledger> Ledger::open(const std::string& path) {
  YARD_ASSIGN(UniqueFd lock, lock_beside(path));
  YARD_ASSIGN(sqlite::Connection connection,
              sqlite::open_database(path, {kSteps, kApplicationId}, {.power_safe = true}));
  return Ledger(std::unique_ptr<Impl>(new Impl{std::move(lock), std::move(connection)}));
}

Result<Ledger> Ledger::open_read_only(const std::string& path) {
  YARD_TRY(read_file(path));  // kNotFound rather than a new file
  YARD_ASSIGN(sqlite::Connection connection, sqlite::Connection::open(path));
  YARD_TRY(connection.execute("PRAGMA query_only = 1"));
  return Ledger(std::unique_ptr<Impl>(new Impl{UniqueFd(), std::move(connection)}));
}

Status Ledger::begin_shard(const ShardRecord& shard, const std::vector<PackedSample>& samples,
                           const std::vector<DroppedObject>& dropped) {
  YARD_ASSIGN(auto transaction, sqlite::Transaction::begin(impl_->connection));
  {
    YARD_ASSIGN(auto insert,
                impl_->query("INSERT INTO shards (number, key, sample_count) VALUES (?, ?, ?)"));
    YARD_TRY(insert->bind(shard.number).bind(shard.key).bind(shard.sample_count).run());
  }
  for (const PackedSample& sample : samples) YARD_TRY(impl_->add_sample(shard.number, sample));
  YARD_TRY(impl_->add_dropped(shard.number, dropped));
  return transaction.commit();
}

Status Ledger::confirm_shard(const ShardRecord& shard) {
  YARD_ASSIGN(auto transaction, sqlite::Transaction::begin(impl_->connection));
  {
    YARD_ASSIGN(auto update, impl_->query("UPDATE shards SET is_confirmed = 1, etag = ?, "
                                          "size_bytes = ? WHERE number = ?"));
    YARD_TRY(update->bind(shard.etag).bind(shard.size_bytes).bind(shard.number).run());
  }
  YARD_TRY(impl_->mark_changed());
  return transaction.commit();
}

Result<std::optional<ShardRecord>> Ledger::pending() {
  YARD_ASSIGN(auto shards, impl_->shards_where("is_confirmed = 0"));
  if (shards.empty()) return std::optional<ShardRecord>();
  return std::optional(shards.front());
}

Result<std::vector<std::string>> Ledger::sample_keys(int64_t shard_number) {
  YARD_ASSIGN(auto select,
              impl_->query("SELECT sample_key FROM objects WHERE shard = ? AND sample_key != '' "
                           "AND is_removed = 0 ORDER BY id"));
  select->bind(shard_number);
  std::vector<std::string> keys;
  while (true) {
    YARD_ASSIGN(const bool has_row, select->step());
    if (!has_row) return keys;
    keys.push_back(select->text());
  }
}

Status Ledger::forget_shard(int64_t shard_number) {
  YARD_ASSIGN(auto transaction, sqlite::Transaction::begin(impl_->connection));
  for (const char* sql :
       {"DELETE FROM objects WHERE shard = ?", "DELETE FROM shards WHERE number = ?"}) {
    YARD_ASSIGN(auto statement, impl_->query(sql));
    YARD_TRY(statement->bind(shard_number).run());
  }
  return transaction.commit();
}

Status Ledger::add_dropped(const std::vector<DroppedObject>& dropped) {
  YARD_ASSIGN(auto transaction, sqlite::Transaction::begin(impl_->connection));
  YARD_TRY(impl_->add_dropped(std::nullopt, dropped));
  return transaction.commit();
}

Result<int64_t> Ledger::next_shard_number() {
  YARD_ASSIGN(auto select, impl_->query("SELECT coalesce(max(number) + 1, 0) FROM shards"));
  YARD_TRY(select->step());
  return select->integer();
}

Result<bool> Ledger::knows(const ObjectVersion& object) {
  YARD_ASSIGN(auto select, impl_->query("SELECT 1 FROM objects WHERE key = ? AND etag = ?"));
  select->bind(object.key).bind(object.etag);
  return impl_->is_there(select);
}

Result<bool> Ledger::has_other_version(const ObjectVersion& object) {
  YARD_ASSIGN(auto select, impl_->query("SELECT 1 FROM objects WHERE key = ? AND etag != ? AND "
                                        "sample_key != ''"));
  select->bind(object.key).bind(object.etag);
  return impl_->is_there(select);
}

Result<std::string> Ledger::object_of_sha256(const std::string& sha256) {
  YARD_ASSIGN(auto select, impl_->query("SELECT key FROM objects WHERE sha256 = ? AND sha256 != '' "
                                        "AND is_removed = 0 LIMIT 1"));
  select->bind(sha256);
  YARD_ASSIGN(const bool has_row, select->step());
  return has_row ? select->text() : std::string();
}

Result<bool> Ledger::has_sample_key(const std::string& sample_key) {
  YARD_ASSIGN(auto select,
              impl_->query("SELECT 1 FROM objects WHERE sample_key = ? AND sample_key != ''"));
  select->bind(sample_key);
  return impl_->is_there(select);
}

Result<std::vector<Ledger::Hash>> Ledger::hashes() {
  YARD_ASSIGN(auto select, impl_->query(std::string("SELECT phash, id FROM objects WHERE ") +
                                        kPackedNow + " ORDER BY id"));
  std::vector<Hash> hashes;
  while (true) {
    YARD_ASSIGN(const bool has_row, select->step());
    if (!has_row) return hashes;
    const auto phash = uint64_t(select->integer());
    hashes.push_back({phash, uint64_t(select->integer())});
  }
}

Result<std::string> Ledger::key_of(uint64_t id) {
  YARD_ASSIGN(auto select, impl_->query("SELECT key FROM objects WHERE id = ?"));
  select->bind(int64_t(id));
  YARD_ASSIGN(const bool has_row, select->step());
  return has_row ? select->text() : std::string();
}

Result<std::vector<ShardRecord>> Ledger::withdraw(const std::string& contributor) {
  YARD_ASSIGN(auto transaction, sqlite::Transaction::begin(impl_->connection));
  for (const char* sql :
       {"INSERT OR IGNORE INTO withdrawn VALUES (?)",
        "UPDATE shards SET is_stale = 1 WHERE number IN (SELECT shard FROM objects WHERE "
        "contributor = ? AND sample_key != '' AND is_removed = 0)",
        "UPDATE objects SET is_removed = 1 WHERE contributor = ? AND sample_key != ''"}) {
    YARD_ASSIGN(auto statement, impl_->query(sql));
    YARD_TRY(statement->bind(contributor).run());
  }
  YARD_ASSIGN(std::vector<ShardRecord> stale, impl_->shards_where("is_stale = 1"));
  YARD_TRY(transaction.commit());
  return stale;
}

Result<bool> Ledger::is_withdrawn(const std::string& contributor) {
  YARD_ASSIGN(auto select, impl_->query("SELECT 1 FROM withdrawn WHERE contributor = ?"));
  select->bind(contributor);
  return impl_->is_there(select);
}

Status Ledger::rewritten(const ShardRecord& shard) {
  YARD_ASSIGN(auto transaction, sqlite::Transaction::begin(impl_->connection));
  {
    YARD_ASSIGN(auto update,
                impl_->query("UPDATE shards SET is_stale = 0, etag = ?, size_bytes = ?, "
                             "sample_count = ? WHERE number = ?"));
    YARD_TRY(update->bind(shard.etag)
                 .bind(shard.size_bytes)
                 .bind(shard.sample_count)
                 .bind(shard.number)
                 .run());
  }
  YARD_TRY(impl_->mark_changed());
  return transaction.commit();
}

Result<LedgerCounts> Ledger::counts() {
  LedgerCounts counts;
  {
    YARD_ASSIGN(auto select, impl_->query("SELECT count(*), coalesce(sum(is_removed), 0) FROM "
                                          "objects WHERE sample_key != ''"));
    YARD_TRY(select->step());
    counts.packed = select->integer();
    counts.removed = select->integer();
    counts.packed -= counts.removed;
  }
  YARD_ASSIGN(auto select, impl_->query("SELECT CASE instr(reason, ': ') WHEN 0 THEN reason ELSE "
                                        "substr(reason, 1, instr(reason, ': ') - 1) END AS word, "
                                        "count(*) FROM objects WHERE reason != '' GROUP BY word"));
  while (true) {
    YARD_ASSIGN(const bool has_row, select->step());
    if (!has_row) break;
    const std::string word = select->text();
    counts.dropped[word] = select->integer();
  }
  YARD_ASSIGN(const std::vector<ShardRecord> all, shards());
  for (const ShardRecord& shard : all) {
    ++counts.shard_count;
    counts.shard_bytes += shard.size_bytes;
  }
  return counts;
}

Result<std::vector<ShardRecord>> Ledger::shards() {
  return impl_->shards_where("is_confirmed = 1 AND sample_count > 0");
}

Result<int64_t> Ledger::manifest_due() {
  YARD_ASSIGN(auto select, impl_->query("SELECT version, change, published FROM manifest"));
  YARD_TRY(select->step());
  const int64_t version = select->integer();
  const int64_t change = select->integer();
  return select->integer() == change ? 0 : version + 1;
}

Status Ledger::manifest_published(int64_t version) {
  YARD_ASSIGN(auto update, impl_->query("UPDATE manifest SET version = ?, published = change"));
  return update->bind(version).run();
}

}  // namespace yard::prep
