// Loader: shards in, batches of images and captions (or of raw members) out, in an order that
// depends only on the seed.
//
// One process, a pool of decoding threads, batches handed over in order. The order is the sample
// plan's (shards/sample_plan.h): global batch b of an epoch holds the same samples for any world
// size and thread count; a rank takes its slice of it. From a store that is far away (an S3 bucket)
// samples are read ahead by many requests at once, within a budget of bytes.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/stop_token.h"
#include "images/picture_reader.h"
#include "loader/pixel_buffer.h"
#include "shards/sample_plan.h"
#include "storage/object_store.h"
#include "telemetry/counters.h"

namespace yard::loader {

// What a sample that cannot be used is: a picture that does not decode or is too large, a member
// that is missing or whose checksum is wrong. kFail: an Error, at its batch. kSkip: counted, and
// replaced by the sample that follows it in the epoch's order, or the one after that; so the stream
// is still the same for any world size and thread count. A store that fails is always an Error.
enum class BadSamplePolicy { kFail, kSkip };

enum class ShardMode {
  // The ranks share every global batch; each sample is used once in an epoch over all ranks.
  kGlobal,
  // Rank r reads the shards r, r + world_size, ... (in the order of their names) and shuffles them
  // by itself: each host touches its own objects only, and no rank knows of another. Epochs of
  // ranks then differ in length. Needs no fewer shards than ranks.
  kIndependent,
};

struct SourceOptions {
  storage::ObjectStore* store = nullptr;  // nullptr: the loader's
  std::vector<std::string> shards;        // keys, in any order; sorted before use
  double weight = 1;                      // its share of the samples, over the sum of weights
};

struct LoaderOptions {
  std::vector<std::string> shards;     // keys in the store, in any order; sorted before use
  std::vector<SourceOptions> sources;  // instead of `shards`: mixed by weight
  ShardMode mode = ShardMode::kGlobal;
  uint64_t seed = 0;
  bool shuffle = true;  // false: every epoch in the order of the shards
  int rank = 0;
  int world_size = 1;
  int64_t global_batch_size = 64;  // a multiple of world_size
  shards::EndPolicy ends = shards::EndPolicy::kDrop;
  // Of several loaders of one rank that take turns: this one gives the batches of each epoch whose
  // number is `turn` modulo `turn_count`.
  int turn = 0;
  int turn_count = 1;

  int image_size = 64;  // output side, pixels
  // Instead of image_size: each batch is of one of these sizes, and each picture goes to the one
  // whose aspect is nearest its own. Sizes are the index's; of an index without them they are
  // read from the pictures' headers at the start.
  std::vector<images::Size> aspect_buckets;
  bool random_flip = false;  // drawn per (seed, epoch, sample), as all of these
  bool random_crop = false;
  std::optional<images::RandomRule> random_resized_crop;  // instead of random_crop
  images::RenderOptions render;                           // values, layout, filter
  std::string image_members = "png,jpg,jpeg,webp";        // the first of these a sample has
  std::string caption_member = "txt";                     // empty: no captions
  // Which samples are used, by what their metadata_member says (metadata_filter.h); empty: all. It
  // is read at the start, of every sample. One without metadata is a bad sample.
  std::string filter;
  std::string metadata_member = "json";
  // Members as they are, in Batch::samples, instead of images and captions.
  bool raw = false;

  // So many samples are held out: next() never gives them, held_out() does. Which ones they are
  // depends on the number of samples in the data set alone.
  int64_t held_out_count = 0;
  BadSamplePolicy bad_samples = BadSamplePolicy::kFail;
  // With kSkip: where each bad sample is written down, a line of JSON {"sample", "error"}; empty:
  // in the log only.
  std::string quarantine_path;
  int thread_count = 1;              // 1..256
  int64_t prefetch_batch_count = 4;  // 1..1024 batches decoded ahead
  // Of encoded samples read ahead from a remote store, one sample at least.
  uint64_t read_ahead_bytes_max = uint64_t{256} << 20;
  // Of shard indexes in memory. What is over is read when it is needed, and a sample without
  // picture or caption is then told at its batch.
  uint64_t index_bytes_max = uint64_t{1} << 30;
  // A store that does not answer is asked for so long in all, its own retries included; a request
  // has a second in any case. At the opening this bounds what the store retries by itself.
  std::chrono::seconds store_patience{300};
  // > 0: resized pictures are kept in memory, in 8 bits, up to this many bytes (small data sets).
  // Pixels then pass through 8 bits whether or not a picture is kept, so that they do not depend on
  // what is in the cache; switching it on or off changes them by at most half a level. Not with
  // aspect_buckets or random_resized_crop.
  uint64_t cache_bytes_max = 0;
  // Of the images of batches; empty: memory of this process. What it gave is not used for a second
  // batch: a GPU may still be reading it.
  PixelAllocator allocator;
};

// Where the stream stands: the next global batch. O(1) in size; resuming costs O(1).
struct LoaderState {
  uint64_t epoch = 0;
  uint64_t batch = 0;  // within the epoch
};

struct RawMember {
  std::string extension;  // in lower case
  std::span<const std::byte> content;
};

struct RawSample {
  std::shared_ptr<const std::byte[]> bytes;  // keeps the contents where they are
  std::vector<RawMember> members;            // in shard order
};

struct Batch {
  LoaderState position;  // of this batch
  int64_t size = 0;      // samples in it: this rank's share
  images::Size image_size;
  // size x 3 x height x width of RenderOptions::type, or size x height x width x 3.
  PixelBuffer images;
  std::vector<std::string> captions;  // size, or none
  std::vector<RawSample> samples;     // size, with LoaderOptions::raw
  std::vector<std::string> keys;      // size; "shard.tar/sample"
  std::vector<uint64_t> sample_ids;   // size; index in the data set, the same on every rank
  std::vector<uint8_t> is_padding;    // size; 1: to be left out of losses, with EndPolicy::kPad
  uint64_t first_sample_number = 0;   // of the global batch, counted over all epochs
};

// What the loader's time went to, since it was opened.
struct LoaderReport {
  double seconds = 0;
  double consumer_wait_seconds = 0;  // next() blocked
  double decode_seconds = 0;         // over all threads
  double read_wait_seconds = 0;      // over all threads: bytes were not there yet
  double idle_seconds = 0;           // over all threads: every batch allowed ahead was ready
  int thread_count = 0;
  int64_t sample_count = 0;
  uint64_t read_bytes = 0;

  // "decode bounds: 1520 samples/s; threads decode 97 %, wait for the store 1 %, idle 2 %; the
  // consumer waits 35 %".
  std::string to_string() const;
};

// Not thread-safe: one consumer; recycle() from any thread. Threads end with the object.
class Loader {
 public:
  // Reads the shards' indexes (made on the fly when a shard has none), starts at `start`. `store`
  // and `counters` must outlive the loader. kInvalidArgument: no samples, a batch larger than the
  // data set or not a multiple of the world size, options out of range, a start past the epoch, or
  // one of another turn; with kFail also a sample without picture or caption, by name. kCorrupt: a
  // damaged index or shard.
  static Result<std::unique_ptr<Loader>> open(storage::ObjectStore& store,
                                              const LoaderOptions& options,
                                              const LoaderState& start, CounterRegistry& counters);
  virtual ~Loader() = default;

  // The next batch of this rank; epochs follow each other without end. Errors name shard, offset
  // and sample, and come where their batch would have; after one, next() gives it again.
  // kCancelled, within 50 ms of `stop`, loses nothing: the next call goes on.
  virtual Result<Batch> next(const StopToken& stop) = 0;
  // Waits for the next batch at most so long; true: next() would not wait. For a caller with other
  // things to look at meanwhile. It counts as waiting of next().
  virtual bool wait_for(std::chrono::milliseconds timeout) = 0;
  // Optional: gives the memory of a batch's images back, for a batch to come, unless it is of
  // LoaderOptions::allocator.
  virtual void recycle(PixelBuffer images) = 0;
  // The held-out samples [begin, begin + count), the same for any seed, epoch, rank and world size,
  // cut from the middle and not flipped; on the calling thread. kInvalidArgument: past
  // held_out_count. A bad one is replaced by the next held-out one, under kSkip.
  virtual Result<Batch> held_out(int64_t begin, int64_t count) = 0;

  virtual int64_t sample_count() const = 0;  // without the held-out ones; kIndependent: this rank's
  virtual int64_t batches_per_epoch() const = 0;
  virtual double wait_seconds() const = 0;    // next() has blocked so long in all
  virtual int64_t skipped_count() const = 0;  // bad samples in the batches given so far
  virtual LoaderReport report() const = 0;
};

}  // namespace yard::loader
