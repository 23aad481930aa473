// LedgerJournal: the changes of a ledger, one object each, numbered in the order in which they
// count: "<prefix>00000042.json". Whoever puts a number first has it, so that writers on any hosts
// share one ledger (PutOptions::if_absent).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "storage/object_store.h"

namespace yard::prep {

// Not thread-safe. Codes: those of the store; kCorrupt: an entry is no JSON, or one is missing.
class LedgerJournal {
 public:
  // `prefix` is empty or ends in '/'.
  LedgerJournal(std::shared_ptr<storage::ObjectStore> store, std::string prefix)
      : store_(std::move(store)), prefix_(std::move(prefix)) {}

  // Those behind `position`, in order. By a listing where nothing is known yet, else by asking for
  // the next number.
  Result<std::vector<Json>> read_after(int64_t position) const;
  // As number position + 1. False: somebody else's change has that number. Its field
  // "by" is unlike any other's, so that an entry whose answer was lost is known again.
  Result<bool> append(int64_t position, const Json& entry) const;

 private:
  std::string key_of(int64_t number) const;
  Result<Json> read(int64_t number) const;

  std::shared_ptr<storage::ObjectStore> store_;
  std::string prefix_;
};

}  // namespace yard::prep
