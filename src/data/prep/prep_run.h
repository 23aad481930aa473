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
#include "prep/prep_messages.h"
#include "prep/spec.h"
#include "storage/object_store.h"

namespace yard::prep {

struct PrepPlaces {
  std::shared_ptr<storage::ObjectStore> source;
  std::string source_prefix;  // empty, or ends in '/'
  std::string bucket;         // of the source; empty: a folder
  std::shared_ptr<storage::ObjectStore> output;
  std::string output_prefix;               // empty, or ends in '/'
  std::string state_dir;                   // there already; with a journal, a place to work in
  std::map<std::string, std::string> env;  // of the steps' programs

  // Where the spec's state is in a store; see LedgerOptions.
  std::shared_ptr<storage::ObjectStore> journal;
  std::string journal_prefix;  // empty, or ends in '/'; below it "ledger/" and "queue-0.db"
  int writer = -1;             // of LedgerOptions; 0 with a journal, where nothing else is said

  // Of `share_count` runs that list the same source each for itself, this is one.
  int share_index = 0;
  int share_count = 1;

  // Where the spec's queue is behind the API of SQS.
  std::shared_ptr<aws::AwsClient> sqs;
  std::shared_ptr<aws::AwsClient> s3;  // of the source's bucket
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
// packed; where the spec names an end_marker, until that is there and nothing is left. A folder or
// bucket is listed first where the spec says so. kUnavailable: another run is the same writer of
// this state.
Result<PrepReport> run_prep(const PrepSpec& spec, const PrepPlaces& places,
                            const PrepRunOptions& options, const StopToken& stop);

// The queue of a spec, in the state's folder, in a file of its own, or behind an API.
Result<std::unique_ptr<PrepMessages>> open_messages(const PrepSpec& spec, const PrepPlaces& places);
// The ledger, as the writer that the places say.
Result<Ledger> open_ledger(const PrepPlaces& places);

struct ScanCounts {
  uint64_t pictures = 0;
  uint64_t accepted = 0;  // that are not done with, and that the queue did not know yet
  uint64_t others = 0;    // objects that are no pictures by their name
};
// What lies under `prefix` into the queue, but what the ledger knows, and other runs' shares.
Result<ScanCounts> scan_source(const PrepPlaces& places, PrepMessages& messages,
                               const std::string& prefix, const StopToken& stop);

// The same with the spec's queue; nothing is packed.
Result<ScanCounts> scan_into_queue(const PrepSpec& spec, const PrepPlaces& places,
                                   const std::string& prefix, const StopToken& stop);

struct PrepStatus {
  LedgerCounts ledger;
  queue::QueueCounts queue;
  queue::QueueCounts dead;
};
Result<PrepStatus> prep_status(const PrepSpec& spec, const PrepPlaces& places);

struct DeadLetter {
  std::string key;  // of the object; the message's text where it names none
  std::string reason;
};
// 1000 at most. Nothing is changed.
Result<std::vector<DeadLetter>> dead_letters(const PrepSpec& spec, const PrepPlaces& places);

// Dead letters back into the queue. Returns how many.
Result<int64_t> redrive(const PrepSpec& spec, const PrepPlaces& places);

struct RemovalReport {
  uint64_t shard_count = 0;  // written anew, or removed
  uint64_t sample_count = 0;
};
// Samples of the contributor leave their shards, which are replaced one by one; a shard without any
// left is removed. What of theirs comes later is dropped. The same call goes on after a failure.
// kUnavailable: a shard with some of theirs is just being written by a run.
Result<RemovalReport> remove_contributor(const PrepSpec& spec, const PrepPlaces& places,
                                         const std::string& contributor, const StopToken& stop);

// "<output>/<prefix>.manifest": the shards as of now, where they have changed since the last one;
// see docs/prep.md. Each version stays as "<prefix>.manifests/000007".
Status publish_manifest(const PrepSpec& spec, const PrepPlaces& places, Ledger& ledger);

std::string ledger_path(const std::string& state_dir);

}  // namespace yard::prep
