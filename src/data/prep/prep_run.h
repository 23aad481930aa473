// yard prep: from the messages of a queue to shards. docs/prep.md is the manual.
//
//   queue -> workers (fetch, verify, decode, describe) -> steps -> rules -> packer -> shards
//
// Blocking; SQLite, stores and steps bound by one run. Codes: those of the stores, the queue and
// the ledger; kExhausted where a disk is full: nothing is lost, the same call goes on later.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/stop_token.h"
#include "prep/ledger.h"
#include "prep/spec.h"
#include "queue/message_queues.h"
#include "storage/object_store.h"

namespace yard::prep {

struct PrepPlaces {
  std::shared_ptr<storage::ObjectStore> source;
  std::string source_prefix;  // empty, or ends in '/'
  std::string bucket;         // of the source; empty: a folder
  std::shared_ptr<storage::ObjectStore> output;
  std::string output_prefix;               // empty, or ends in '/'
  std::string state_dir;                   // there already
  std::map<std::string, std::string> env;  // of the steps' programs
};

struct PrepProgress {
  uint64_t taken = 0;  // messages
  uint64_t packed = 0;
  uint64_t dropped = 0;
  uint64_t rejected = 0;
  uint64_t shards = 0;
  int64_t waiting = 0;  // in the queue, as of the last second
};

struct PrepReport {
  PrepProgress done;
  uint64_t repeated = 0;
  uint64_t scanned = 0;   // pictures in the source
  uint64_t accepted = 0;  // of them new to the queue
};

struct PrepRunOptions {
  bool follow = false;                                // until it is stopped
  std::function<void(const PrepProgress&)> progress;  // now and then, on any thread
};

// Until the queue is empty, or with `follow` until `stop`: what is in work is then finished and
// packed. A folder or bucket is listed first where the spec says so. kUnavailable: another run has
// the same state.
Result<PrepReport> run_prep(const PrepSpec& spec, const PrepPlaces& places,
                            const PrepRunOptions& options, const StopToken& stop);

// The queue of a spec and its dead letters, made where they are missing.
struct PrepQueue {
  queue::MessageQueues queues;
  std::string name;
  std::string dead_name;
};
Result<PrepQueue> open_prep_queue(const PrepSpec& spec, const std::string& state_dir);

struct ScanCounts {
  uint64_t pictures = 0;
  uint64_t accepted = 0;  // that the queue did not know yet
  uint64_t others = 0;    // objects that are no pictures by their name
};
Result<ScanCounts> scan_source(PrepQueue& queue, storage::ObjectStore& store,
                               const std::string& prefix, const std::string& bucket,
                               const StopToken& stop);

struct PrepStatus {
  LedgerCounts ledger;
  queue::QueueCounts queue;
  queue::QueueCounts dead;
};
Result<PrepStatus> prep_status(const PrepSpec& spec, const std::string& state_dir);

struct DeadLetter {
  std::string key;  // of the object; the message's text where it names none
  std::string reason;
};
// 1000 at most. Nothing is changed.
Result<std::vector<DeadLetter>> dead_letters(const PrepSpec& spec, const std::string& state_dir);

struct RemovalReport {
  uint64_t shard_count = 0;  // written anew, or removed
  uint64_t sample_count = 0;
};
// Samples of the contributor leave their shards, which are replaced one by one; a shard without any
// left is removed. What of theirs comes later is dropped. The same call goes on after a failure.
Result<RemovalReport> remove_contributor(const PrepSpec& spec, const PrepPlaces& places,
                                         const std::string& contributor, const StopToken& stop);

// "<output>/<prefix>.manifest": the shards as of now, where they have changed since the last one;
// see docs/prep.md. Each version stays as "<prefix>.manifests/000007".
Status publish_manifest(const PrepSpec& spec, const PrepPlaces& places, Ledger& ledger);

std::string ledger_path(const std::string& state_dir);

}  // namespace yard::prep
