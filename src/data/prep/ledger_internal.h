// What the parts of the ledger share.
#pragma once

#include "base/file.h"
#include "base/json.h"
#include "prep/ledger.h"
#include "prep/ledger_journal.h"
#include "sqlite/sqlite.h"

namespace yard::prep {

// A writer's shards have numbers from writer * kShardsOfWriter on.
constexpr int64_t kShardsOfWriter = 1'000'000'000;

struct Ledger::Impl {
  Result<sqlite::CachedStatement> query(std::string_view sql) { return connection.cached(sql); }
  Result<std::vector<ShardRecord>> shards_where(const std::string& condition);
  Result<std::vector<Hash>> hashes_where(const std::string& condition);
  int64_t first_number() const { return writer * kShardsOfWriter; }
  std::string is_own(std::string_view column) const;

  // Makes a change, in the journal first where there is one. False: it does not fit.
  Result<bool> change(Json entry, const Fits& fits);
  Status catch_up();
  // Entries as they stand in the journal; kCorrupt where one is malformed.
  Status apply(const Json& entry);

  Result<bool> has_row(std::string_view sql, int64_t number);

  UniqueFd lock;
  sqlite::Connection connection;
  int64_t writer = 0;
  std::unique_ptr<LedgerJournal> journal;
  std::string session;          // of this process, in its entries
  int64_t entry_count = 0;      // of this process
  bool is_open = false;         // has caught up once
  int64_t manifest_change = 0;  // the last change that manifest_due() counts
};

}  // namespace yard::prep
