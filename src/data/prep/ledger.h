// Ledger: what became of every object that prep took in hand, in one SQLite file: which shard holds
// it, or why it was left out. It makes the shards exactly-once, see docs/prep.md.
//
// Several writers may share it: processes that have the same file, or, with a journal in a store,
// any hosts; the file is then only a copy of what the journal says. Each writer has a number and
// begins shards of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "storage/object_store.h"

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

struct LedgerOptions {
  std::string path;
  int writer = -1;  // 0 to kWritersMax - 1; -1: the lowest that nobody has on this file
  std::shared_ptr<storage::ObjectStore> journal;  // null: the file is all there is
  std::string journal_prefix;                     // empty, or ends in '/'
};

// Not thread-safe. Codes: those of sqlite.h and of the journal.
//
// A change that does not fit any more, for another writer was faster, is not made: false.
class Ledger {
 public:
  static constexpr int kWritersMax = 1000;

  // kUnavailable: another process is that writer on this file. Of a journal whoever chooses the
  // numbers sees to that: two at work as the same writer would take each other's shards for those
  // of a dead run.
  static Result<Ledger> open_as(const LedgerOptions& options);
  static Result<Ledger> open(const std::string& path) { return open_as({.path = path}); }
  // To look at it while others work.
  static Result<Ledger> open_read_only(const std::string& path);
  Ledger(Ledger&&) noexcept;
  Ledger& operator=(Ledger&&) noexcept;
  ~Ledger();

  int writer() const;
  // What others have written to the journal is known from now on.
  Status refresh();

  // A shard goes into the ledger before it is there, and is confirmed once it is durable. `fits` is
  // asked when nobody else can change the ledger any more.
  using Fits = std::function<Result<bool>()>;
  Result<bool> begin_shard(const ShardRecord& shard, const std::vector<PackedSample>& samples,
                           const std::vector<DroppedObject>& dropped, const Fits& fits = {});
  // With its etag and size. False: it was forgotten meanwhile.
  Result<bool> confirm_shard(const ShardRecord& shard);
  // Of this writer, begun and neither confirmed nor forgotten: by a run that died.
  Result<std::optional<ShardRecord>> pending();
  Result<std::vector<std::string>> sample_keys(int64_t shard_number);  // not the removed ones
  // As if it had never been begun. False: it is confirmed, or was forgotten before.
  Result<bool> forget_shard(int64_t shard_number);
  // Without a shard.
  Result<bool> add_dropped(const std::vector<DroppedObject>& dropped, const Fits& fits = {});

  // They are dead letters: a listing does not bring them once more.
  Status add_rejected(const std::vector<ObjectVersion>& objects);
  Result<bool> is_rejected(const ObjectVersion& object);

  Result<int64_t> next_shard_number();  // of this writer
  // "shard-000007.tar"; of writers above 0 "shard-w2-000007.tar".
  static std::string shard_key(std::string_view prefix, int64_t shard_number);
  Result<bool> knows(const ObjectVersion& object);
  // knows(), and not by a shard that may still be forgotten.
  Result<bool> is_settled(const ObjectVersion& object);
  // The shard that is begun and not confirmed and that the object is to be in, or came with.
  Result<std::optional<ShardRecord>> pending_shard_of(const ObjectVersion& object);
  Result<bool> has_other_version(const ObjectVersion& object);
  Result<std::string> object_of_sha256(const std::string& sha256);  // a key; empty: none
  Result<bool> has_sample_key(const std::string& sample_key);
  struct Hash {
    uint64_t phash = 0;
    uint64_t id = 0;
  };
  Result<std::vector<Hash>> hashes();  // of samples that are packed
  // Of other writers, with greater ids.
  Result<std::vector<Hash>> hashes_of_others(uint64_t after_id);
  Result<std::string> key_of(const Hash& hash);  // empty: it is gone

  // All samples of a contributor are marked as removed, and none of theirs is taken any more.
  // Returns the shards that hold some, also those that an earlier call left unwritten; not those
  // that are just being written.
  Result<std::vector<ShardRecord>> withdraw(const std::string& contributor);
  Result<bool> is_withdrawn(const std::string& contributor);
  // Whether shards with samples that are removed are just being written, or were by a run that
  // died.
  Result<bool> has_unsettled_removals();
  // The shard was written anew without its removed samples; without any left it is gone.
  Status rewritten(const ShardRecord& shard);

  Result<LedgerCounts> counts();
  Result<std::vector<ShardRecord>> shards();  // confirmed, in order
  // The number of the next manifest, when something has changed since the last; 0: nothing has.
  Result<int64_t> manifest_due();
  // False: another one has that number, so that what is published may be older than that.
  Result<bool> manifest_published(int64_t version);

 private:
  struct Impl;
  explicit Ledger(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace yard::prep
