#include "prep/ledger.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>

#include <cerrno>

#include "base/ids.h"
#include "prep/ledger_internal.h"

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
)sql",
                                  R"sql(
CREATE TABLE journal (position INTEGER NOT NULL);  -- the last entry that is in these tables
INSERT INTO journal VALUES (0);
CREATE TABLE rejected (key TEXT, etag TEXT, PRIMARY KEY (key, etag)) WITHOUT ROWID;
)sql"};

constexpr const char* kPackedNow = "sample_key != '' AND is_removed = 0";
constexpr const char* kShardColumns = "number, key, etag, size_bytes, sample_count";

// Held for as long as the ledger is open.
Result<UniqueFd> lock_file(const std::string& lock_path) {
  UniqueFd fd(::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (!fd.valid()) return errno_error(lock_path, errno);
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) == 0) return fd;
  return Error{Code::kUnavailable, lock_path + ": another process is at work with it"};
}

// Of the writer that is wanted, or of the first that nobody is.
Result<std::pair<UniqueFd, int>> lock_writer(const std::string& path, int wanted) {
  for (int writer = std::max(wanted, 0); writer < Ledger::kWritersMax; ++writer) {
    auto lock = lock_file(fmt::format("{}.writer-{}.lock", path, writer));
    if (lock) return std::pair(*std::move(lock), writer);
    if (lock.error().code != Code::kUnavailable || wanted >= 0) return std::move(lock).error();
  }
  return Error{Code::kUnavailable, path + ": it has as many writers as it can have"};
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

std::string Ledger::Impl::is_own(std::string_view column) const {
  return fmt::format("{0} >= {1} AND {0} < {2}", column, first_number(),
                     first_number() + kShardsOfWriter);
}

Result<std::vector<ShardRecord>> Ledger::Impl::shards_where(const std::string& condition) {
  YARD_ASSIGN(auto select, query(fmt::format("SELECT {} FROM shards WHERE {} ORDER BY number",
                                             kShardColumns, condition)));
  std::vector<ShardRecord> shards;
  while (true) {
    YARD_ASSIGN(const bool has_row, select->step());
    if (!has_row) return shards;
    shards.push_back(read_shard(*select));
  }
}

Result<std::vector<Ledger::Hash>> Ledger::Impl::hashes_where(const std::string& condition) {
  YARD_ASSIGN(auto select, query(fmt::format("SELECT phash, id FROM objects WHERE {} AND {} "
                                             "ORDER BY id",
                                             kPackedNow, condition)));
  std::vector<Hash> hashes;
  while (true) {
    YARD_ASSIGN(const bool has_row, select->step());
    if (!has_row) return hashes;
    const auto phash = uint64_t(select->integer());
    hashes.push_back({phash, uint64_t(select->integer())});
  }
}

Ledger::Ledger(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Ledger::Ledger(Ledger&&) noexcept = default;
Ledger& Ledger::operator=(Ledger&&) noexcept = default;
Ledger::~Ledger() = default;

Result<Ledger> Ledger::open_as(const LedgerOptions& options) {
  YARD_ASSIGN(auto locked, lock_writer(options.path, options.writer));
  // What a journal says need not survive a power cut here.
  YARD_ASSIGN(sqlite::Connection connection,
              sqlite::open_database(options.path, {kSteps, kApplicationId},
                                    {.power_safe = options.journal == nullptr}));
  auto impl = std::unique_ptr<Impl>(new Impl{std::move(locked.first), std::move(connection)});
  impl->writer = locked.second;
  impl->session = random_name(16);
  if (options.journal)
    impl->journal = std::make_unique<LedgerJournal>(options.journal, options.journal_prefix);
  YARD_TRY(impl->catch_up());
  impl->is_open = true;
  return Ledger(std::move(impl));
}

Result<Ledger> Ledger::open_read_only(const std::string& path) {
  YARD_TRY(read_file(path));  // kNotFound rather than a new file
  YARD_ASSIGN(sqlite::Connection connection, sqlite::Connection::open(path));
  YARD_TRY(connection.execute("PRAGMA query_only = 1"));
  return Ledger(std::unique_ptr<Impl>(new Impl{UniqueFd(), std::move(connection)}));
}

int Ledger::writer() const {
  return int(impl_->writer);
}

Result<std::optional<ShardRecord>> Ledger::pending() {
  YARD_ASSIGN(auto shards, impl_->shards_where("is_confirmed = 0 AND " + impl_->is_own("number")));
  if (shards.empty()) return std::optional<ShardRecord>();
  return std::optional(shards.front());
}

Result<std::optional<ShardRecord>> Ledger::pending_shard_of(const ObjectVersion& object) {
  YARD_ASSIGN(auto select,
              impl_->query("SELECT shards.number, shards.key, shards.etag, size_bytes, "
                           "sample_count FROM objects JOIN shards ON shards.number = shard "
                           "WHERE objects.key = ? AND objects.etag = ? AND is_confirmed = 0"));
  select->bind(object.key).bind(object.etag);
  YARD_ASSIGN(const bool has_row, select->step());
  if (!has_row) return std::optional<ShardRecord>();
  return std::optional(read_shard(*select));
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

Result<int64_t> Ledger::next_shard_number() {
  YARD_ASSIGN(auto select, impl_->query("SELECT coalesce(max(number) + 1, ?) FROM shards WHERE " +
                                        impl_->is_own("number")));
  YARD_TRY(select->bind(impl_->first_number()).step());
  return select->integer();
}

std::string Ledger::shard_key(std::string_view prefix, int64_t shard_number) {
  const int64_t writer = shard_number / kShardsOfWriter;
  const int64_t number = shard_number % kShardsOfWriter;
  return writer == 0 ? fmt::format("{}-{:06}.tar", prefix, number)
                     : fmt::format("{}-w{}-{:06}.tar", prefix, writer, number);
}

Result<bool> Ledger::knows(const ObjectVersion& object) {
  YARD_ASSIGN(auto select, impl_->query("SELECT 1 FROM objects WHERE key = ? AND etag = ?"));
  return select->bind(object.key).bind(object.etag).step();
}

Result<bool> Ledger::is_settled(const ObjectVersion& object) {
  YARD_ASSIGN(auto select, impl_->query("SELECT coalesce(is_confirmed, 1) FROM objects LEFT JOIN "
                                        "shards ON number = shard WHERE objects.key = ? AND "
                                        "objects.etag = ?"));
  YARD_ASSIGN(const bool has_row, select->bind(object.key).bind(object.etag).step());
  return has_row && select->integer() == 1;
}

Result<bool> Ledger::has_other_version(const ObjectVersion& object) {
  YARD_ASSIGN(auto select, impl_->query("SELECT 1 FROM objects WHERE key = ? AND etag != ? AND "
                                        "sample_key != ''"));
  return select->bind(object.key).bind(object.etag).step();
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
  return select->step();
}

Result<std::vector<Ledger::Hash>> Ledger::hashes() {
  return impl_->hashes_where("1");
}

Result<std::vector<Ledger::Hash>> Ledger::hashes_of_others(uint64_t after_id) {
  return impl_->hashes_where(fmt::format("id > {} AND NOT ({})", after_id, impl_->is_own("shard")));
}

Result<std::string> Ledger::key_of(const Hash& hash) {
  YARD_ASSIGN(auto select, impl_->query(fmt::format("SELECT key FROM objects WHERE id = ? AND "
                                                    "phash = ? AND {}",
                                                    kPackedNow)));
  YARD_ASSIGN(const bool has_row, select->bind(int64_t(hash.id)).bind(int64_t(hash.phash)).step());
  return has_row ? select->text() : std::string();
}

Result<bool> Ledger::is_rejected(const ObjectVersion& object) {
  YARD_ASSIGN(auto select, impl_->query("SELECT 1 FROM rejected WHERE key = ? AND etag = ?"));
  return select->bind(object.key).bind(object.etag).step();
}

Result<bool> Ledger::has_unsettled_removals() {
  YARD_ASSIGN(const auto shards, impl_->shards_where("is_stale = 1 AND is_confirmed = 0"));
  return !shards.empty();
}

Result<bool> Ledger::is_withdrawn(const std::string& contributor) {
  YARD_ASSIGN(auto select, impl_->query("SELECT 1 FROM withdrawn WHERE contributor = ?"));
  select->bind(contributor);
  return select->step();
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
  impl_->manifest_change = select->integer();
  return select->integer() == impl_->manifest_change ? 0 : version + 1;
}

}  // namespace yard::prep
