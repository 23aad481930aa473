// Ledger: what became of every object that prep took in hand, in one SQLite file: which shard holds
// it, or why it was left out. It makes the shards exactly-once, see docs/prep.md.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace yard::prep {

// One version of an object: its key in the source, and its ETag.
struct ObjectVersion {
  std::string key;
  std::string etag;
  auto operator<=>(const ObjectVersion&) const = default;
};

struct PackedSample {
  ObjectVersion object;
  std::string sample_key;
  std::string sha256;
  uint64_t phash = 0;
  std::string contributor;
  std::string licence;
};

struct DroppedObject {
  ObjectVersion object;
  std::string reason;  // a word, "too_small"; what follows a ": " is for people
};

struct ShardRecord {
  int64_t number = 0;
  std::string key;
  std::string etag;
  int64_t size_bytes = 0;
  int64_t sample_count = 0;
};

struct LedgerCounts {
  int64_t packed = 0;
  int64_t removed = 0;                     // on request of their contributor
  std::map<std::string, int64_t> dropped;  // by the reason's word
  int64_t shard_count = 0;
  int64_t shard_bytes = 0;
};

// Not thread-safe; one process at a time has it open, the others are told kUnavailable. Codes:
// those of sqlite.h.
class Ledger {
 public:
  static Result<Ledger> open(const std::string& path);
  // To look at it while another process works.
  static Result<Ledger> open_read_only(const std::string& path);
  Ledger(Ledger&&) noexcept;
  Ledger& operator=(Ledger&&) noexcept;
  ~Ledger();

  // A shard goes into the ledger before it is there, and is confirmed once it is durable. One that
  // was begun by a run that died is pending().
  Status begin_shard(const ShardRecord& shard, const std::vector<PackedSample>& samples,
                     const std::vector<DroppedObject>& dropped);
  Status confirm_shard(const ShardRecord& shard);  // with its etag and size
  Result<std::optional<ShardRecord>> pending();
  Result<std::vector<std::string>> sample_keys(int64_t shard_number);  // not the removed ones
  // As if it had never been begun.
  Status forget_shard(int64_t shard_number);
  // Without a shard.
  Status add_dropped(const std::vector<DroppedObject>& dropped);

  Result<int64_t> next_shard_number();
  Result<bool> knows(const ObjectVersion& object);
  Result<bool> has_other_version(const ObjectVersion& object);
  Result<std::string> object_of_sha256(const std::string& sha256);  // a key; empty: none
  Result<bool> has_sample_key(const std::string& sample_key);
  struct Hash {
    uint64_t phash = 0;
    uint64_t id = 0;
  };
  Result<std::vector<Hash>> hashes();  // of samples that are packed
  Result<std::string> key_of(uint64_t id);

  // All samples of a contributor are marked as removed, and none of theirs is taken any more.
  // Returns the shards that hold some, also those that an earlier call left unwritten.
  Result<std::vector<ShardRecord>> withdraw(const std::string& contributor);
  Result<bool> is_withdrawn(const std::string& contributor);
  // The shard was written anew without its removed samples; without any left it is gone.
  Status rewritten(const ShardRecord& shard);

  Result<LedgerCounts> counts();
  Result<std::vector<ShardRecord>> shards();  // confirmed, in order
  // The number of the next manifest, when something has changed since the last; 0: nothing has.
  Result<int64_t> manifest_due();
  Status manifest_published(int64_t version);

 private:
  struct Impl;
  explicit Ledger(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace yard::prep
