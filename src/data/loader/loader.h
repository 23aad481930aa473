// Loader: shards in, batches of images and captions out, in an order that depends only on the seed.
//
// One process, a pool of decoding threads, batches handed over in order. The order is the sample
// plan's (shards/sample_plan.h): global batch b of an epoch holds the same samples for any world
// size and thread count; a rank takes its slice of it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/stop_token.h"
#include "storage/object_store.h"
#include "telemetry/counters.h"

namespace yard::loader {

// What a sample that cannot be used is: a picture that does not decode or is too large, a member
// that is missing or whose checksum is wrong. kFail: an Error, at its batch. kSkip: counted, and
// replaced by the sample that follows it in the epoch's order, or the one after that; so the stream
// is still the same for any world size and thread count. A store that fails is always an Error.
enum class BadSamplePolicy { kFail, kSkip };

struct LoaderOptions {
  std::vector<std::string> shards;  // keys in the store, in any order; sorted before use
  uint64_t seed = 0;
  int rank = 0;
  int world_size = 1;
  int64_t global_batch_size = 64;  // a multiple of world_size
  int image_size = 64;             // output side, pixels
  bool random_flip = false;        // drawn per (seed, epoch, sample)
  bool random_crop = false;
  std::string image_members = "png,jpg,jpeg";  // the first of these a sample has
  std::string caption_member = "txt";
  // So many samples are held out: next() never gives them, held_out() does. Which ones they are
  // depends on the number of samples in the data set alone.
  int64_t held_out_count = 0;
  BadSamplePolicy bad_samples = BadSamplePolicy::kFail;
  int thread_count = 1;              // 1..256
  int64_t prefetch_batch_count = 4;  // 1..1024; the loader's memory is about so many batches
  // > 0: resized pictures are kept in memory, in 8 bits, up to this many bytes (small data sets).
  // Pixels then pass through 8 bits whether or not a picture is kept, so that they do not depend on
  // what is in the cache; switching it on or off changes them by at most half a level.
  uint64_t cache_bytes_max = 0;
};

// Where the stream stands: the next global batch. O(1) in size; resuming costs O(1).
struct LoaderState {
  uint64_t epoch = 0;
  uint64_t batch = 0;  // within the epoch
};

struct Batch {
  LoaderState position;  // of this batch
  int64_t size = 0;      // samples in it: this rank's share
  int image_size = 0;
  std::vector<float> images;          // size x 3 x image_size x image_size, [-1, 1]
  std::vector<std::string> captions;  // size
  std::vector<std::string> keys;      // size; "shard.tar/sample"
  std::vector<uint64_t> sample_ids;   // size; index in the data set, the same on every rank
};

// Not thread-safe: one consumer. Threads end with the object.
class Loader {
 public:
  // Reads the shards' indexes (made on the fly when a shard has none), starts at `start`. `store`
  // and `counters` must outlive the loader. kInvalidArgument: no samples, a batch larger than the
  // data set or not a multiple of the world size, options out of range, a start past the epoch;
  // with kFail also a sample without picture or caption, by name. kCorrupt: a damaged index or
  // shard.
  static Result<std::unique_ptr<Loader>> open(storage::ObjectStore& store,
                                              const LoaderOptions& options,
                                              const LoaderState& start, CounterRegistry& counters);
  virtual ~Loader() = default;

  // The next batch of this rank; epochs follow each other without end. An epoch's last samples
  // that do not fill a global batch are dropped. Errors name shard, offset and sample, and come
  // where their batch would have; after one, next() gives it again. kCancelled, within 50 ms of
  // `stop`, loses nothing: the next call goes on.
  virtual Result<Batch> next(const StopToken& stop) = 0;
  // Optional: gives a batch's memory back, for a batch to come.
  virtual void recycle(Batch used) = 0;
  // The held-out samples [begin, begin + count), the same for any seed, epoch, rank and world size,
  // cut from the middle and not flipped; on the calling thread. kInvalidArgument: past
  // held_out_count. A bad one is replaced by the next held-out one, under kSkip.
  virtual Result<Batch> held_out(int64_t begin, int64_t count) = 0;

  virtual int64_t sample_count() const = 0;  // without the held-out ones
  virtual int64_t batches_per_epoch() const = 0;
  virtual double wait_seconds() const = 0;    // next() has blocked so long in all
  virtual int64_t skipped_count() const = 0;  // bad samples in the batches given so far
};

}  // namespace yard::loader
