// Packer: samples into shards, each exactly once, and the end of every message.
#pragma once

#include <chrono>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "prep/ledger.h"
#include "prep/near_duplicates.h"
#include "prep/prep_messages.h"
#include "prep/prep_shard.h"
#include "prep/work_internal.h"

namespace yard::prep {

struct PackerPlace {
  PrepMessages& messages;
  storage::ObjectStore& output;
  std::string shard_prefix;   // "emoji/shard"
  std::string source_prefix;  // which samples' keys leave out
};

// What this run did.
struct PackerCounts {
  uint64_t packed = 0;
  uint64_t dropped = 0;
  uint64_t rejected = 0;
  uint64_t retried = 0;
  uint64_t ignored = 0;
  uint64_t repeated = 0;  // delivered again though they were done with
  uint64_t shards = 0;
};

// For one thread, except keep_alive() and counts().
//
// A message is removed from the queue only when the shard with its sample is durable and the ledger
// says so. What is in the open shard when the process dies is delivered again. Where other writers
// share the ledger and one of them was faster with some of what this one holds, all of it is
// delivered again, and nothing is written.
class Packer {
 public:
  // `ledger` and the place outlive it. Finds out what a run of this writer left behind: a shard
  // that the ledger began is confirmed where it is there as a whole, else forgotten. kCorrupt:
  // something else lies under its key.
  static Result<std::unique_ptr<Packer>> open(const PrepSpec& spec, PackerPlace place,
                                              Ledger& ledger);

  Status take(Work work);
  // Makes what it holds durable and ends its messages.
  Status flush();
  bool holds_anything() const { return !held_.empty(); }
  // Since the first of what it holds came.
  std::chrono::steady_clock::duration held_for() const;

  // What other writers did meanwhile is known from now on, and what is done with leaves the queue.
  Status refresh();
  // Objects that became dead letters since the last call.
  std::vector<ObjectVersion> take_rejected() { return std::exchange(rejected_, {}); }

  // Its messages stay invisible to others. Thread-safe.
  Status keep_alive();
  PackerCounts counts() const;

 private:
  Packer(const PrepSpec& spec, PackerPlace place, Ledger& ledger)
      : spec_(spec), place_(std::move(place)), ledger_(ledger) {}

  // A shard that was begun and not confirmed, by a run of which nothing is heard any more.
  Status settle(ShardRecord shard);
  Status check_recovered(const ShardRecord& shard);
  // Whether its ledger has the last word on the object.
  Result<bool> is_done_with(const ObjectVersion& object);
  // Whether nothing of what is held was taken or done by others meanwhile.
  Result<bool> still_fits();
  Result<bool> fits_others(const PackedSample& sample);
  Status read_hashes();
  void add_held_hash(uint64_t phash, const std::string& key);
  Result<bool> take_hashes_of_others();
  Status abandon();
  Status finish(std::string receipt);
  Status remove_finished();
  Status unpublish(const std::string& shard_key);
  std::vector<std::string> held_receipts() const;
  // Why the sample is not to be packed; "" when it is.
  Result<std::string> duplicate_of(const Work& work);
  Result<std::string> near_duplicate_of(const Work& work);
  Result<std::string> free_sample_key(const Work& work);
  Status pack(Work& work);
  Status add_to_shard(const std::string& sample_key, const Work& work);
  Status end_without_shard(Work& work);
  void hold(const Work& work);
  void count_held();
  void forget_held();

  static constexpr size_t kFinishedMax = 100;
  static constexpr uint64_t kFirstHeldId = uint64_t{1} << 62;  // above those of the ledger

  const PrepSpec& spec_;
  const PackerPlace place_;
  Ledger& ledger_;
  NearDuplicates hashes_;

  // Of the open shard.
  std::optional<PrepShard> shard_;
  int64_t shard_number_ = 0;
  std::vector<PackedSample> samples_;
  std::vector<DroppedObject> dropped_;
  std::set<std::string> sample_keys_;
  std::map<std::string, std::string> sha256s_;    // and the object that has it
  std::map<std::string, std::string> etags_;      // of the samples' objects
  std::map<uint64_t, std::string> hash_objects_;  // by the id in hashes_
  uint64_t next_hash_id_ = kFirstHeldId;
  uint64_t last_hash_id_ = 0;  // of the ledger, in hashes_
  std::chrono::steady_clock::time_point held_since_;
  std::vector<ObjectVersion> rejected_;
  std::vector<std::string> finished_;  // receipts that need no shard, removed many at a time

  mutable std::mutex mutex_;                   // of what follows
  std::map<ObjectVersion, std::string> held_;  // receipts, the last one of each object
  PackerCounts counts_;
};

}  // namespace yard::prep
