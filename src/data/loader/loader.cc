#include "loader/loader.h"

#include <fmt/format.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <new>
#include <optional>
#include <thread>

#include "base/clock.h"
#include "base/log.h"
#include "base/random.h"
#include "loader/data_set_internal.h"
#include "loader/sample_decoder_internal.h"
#include "shards/sample_plan.h"
#include "telemetry/metric_names.h"

namespace yard::loader {
namespace {

// Streams of random numbers; their lower half is the epoch.
constexpr uint64_t kCropStream = uint64_t{0x6c647231} << 32;
constexpr uint64_t kFlipStream = uint64_t{0x6c647232} << 32;
constexpr int64_t kBadInARowMax = 1000;  // then the data set is bad, not a sample
constexpr int64_t kBadSampleLinesMax = 20;
constexpr auto kStopPollInterval = std::chrono::milliseconds(50);

Error invalid(std::string message) {
  return {Code::kInvalidArgument, std::move(message)};
}

Status check_options(const LoaderOptions& o) {
  if (o.shards.empty()) return invalid("no shards were given");
  if (o.world_size < 1 || o.rank < 0 || o.rank >= o.world_size)
    return invalid(fmt::format("rank {} is not in a world of {}", o.rank, o.world_size));
  if (o.global_batch_size < 1 || o.global_batch_size % o.world_size != 0)
    return invalid(fmt::format("a global batch of {} samples cannot be shared evenly by {} ranks",
                               o.global_batch_size, o.world_size));
  if (o.image_size < 1 || o.image_size > 8192)
    return invalid(fmt::format("image size {} is not in 1..8192", o.image_size));
  if (o.thread_count < 1 || o.thread_count > 256)
    return invalid(fmt::format("{} loader threads are not in 1..256", o.thread_count));
  if (o.prefetch_batch_count < 1 || o.prefetch_batch_count > 1024)
    return invalid(fmt::format("{} prefetched batches are not in 1..1024", o.prefetch_batch_count));
  if (o.held_out_count < 0)
    return invalid(fmt::format("{} samples cannot be held out", o.held_out_count));
  return Ok{};
}

Batch empty_batch(const LoaderState& position, int64_t size, int image_size) {
  Batch batch;
  batch.position = position;
  batch.size = size;
  batch.image_size = image_size;
  batch.captions.resize(size_t(size));
  batch.keys.resize(size_t(size));
  batch.sample_ids.resize(size_t(size));
  return batch;
}

// A batch in the making. Its samples are claimed one by one by the threads.
struct Slot {
  Batch batch;
  std::once_flag allocated;
  int64_t claimed_count = 0;    // under the loader's mutex, as is all below
  int64_t remaining_count = 0;  // not yet loaded
  int64_t skipped_count = 0;
  std::optional<std::pair<int64_t, Error>> failed;  // of the first sample that failed
};

// The sample to try after `attempt` bad ones.
using Candidate = std::function<uint64_t(int64_t attempt)>;

class PooledLoader final : public Loader {
 public:
  PooledLoader(const LoaderOptions& options, DataSet set, const shards::SamplePlan& plan,
               const LoaderState& start, CounterRegistry& counters)
      : options_(options),
        set_(std::move(set)),
        plan_(plan),
        decoder_(set_, options_, counters),
        samples_counter_(counters.counter(metric::kLoaderSamples)),
        skipped_counter_(counters.counter(metric::kLoaderSkippedSamples)),
        wait_counter_(counters.counter(metric::kLoaderConsumerWaitSeconds)),
        next_position_(start) {
    for (int i = 0; i < options_.thread_count; ++i) threads_.emplace_back([this] { work(); });
  }

  ~PooledLoader() override {
    {
      std::lock_guard lock(mutex_);
      is_ending_ = true;
    }
    work_changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  Result<Batch> next(const StopToken& stop) override;
  Result<Batch> held_out(int64_t begin, int64_t count) override;

  void recycle(Batch used) override {
    std::lock_guard lock(mutex_);
    if (spare_images_.size() < size_t(options_.prefetch_batch_count))
      spare_images_.push_back(std::move(used.images));
  }

  int64_t sample_count() const override { return int64_t(plan_.training_count()); }
  int64_t batches_per_epoch() const override { return int64_t(plan_.batches_per_epoch()); }
  double wait_seconds() const override { return wait_seconds_; }
  int64_t skipped_count() const override { return skipped_count_; }

 private:
  struct Claim {
    std::shared_ptr<Slot> slot;
    int64_t index = 0;
    int64_t skipped_count = 0;  // bad samples met on the way to a good one
  };

  void work();
  std::optional<Claim> take_claim();
  void start_slot();
  void finish(const Claim& claim, Status status);
  Status load(Claim& claim, Scratch& scratch);
  Status load_into(Batch& batch, int64_t index, const Candidate& candidate, int64_t candidate_count,
                   bool is_training, Scratch& scratch, int64_t& skipped_count);
  Draw draw(uint64_t epoch, uint64_t sample_id) const;
  void log_bad_sample(const Error& error);
  void note_skipped(int64_t count);

  size_t image_floats() const {
    return 3 * size_t(options_.image_size) * size_t(options_.image_size);
  }
  int64_t share_size() const { return options_.global_batch_size / options_.world_size; }

  const LoaderOptions options_;
  const DataSet set_;
  const shards::SamplePlan plan_;
  SampleDecoder decoder_;
  Counter& samples_counter_;
  Counter& skipped_counter_;
  Counter& wait_counter_;
  std::atomic<int64_t> bad_sample_line_count_ = 0;
  int64_t skipped_count_ = 0;    // the consumer's
  double wait_seconds_ = 0;      // the consumer's
  Scratch held_out_scratch_;     // the consumer's
  std::optional<Error> failed_;  // the consumer's: what next() gives from now on

  std::mutex mutex_;
  std::condition_variable work_changed_;     // there may be a sample to claim, or the end
  std::condition_variable batch_changed_;    // the front slot may be whole
  std::deque<std::shared_ptr<Slot>> slots_;  // front: the next to hand over
  LoaderState next_position_;                // of the slot that is started next
  std::vector<std::vector<float>> spare_images_;
  bool is_ending_ = false;
  std::vector<std::thread> threads_;
};

void PooledLoader::work() {
  Scratch scratch;
  while (auto claimed = take_claim()) {
    Status status = Ok{};
    try {
      status = load(*claimed, scratch);
    } catch (const std::bad_alloc&) {
      status = Error{Code::kExhausted, "out of memory for a batch of pictures"};
    } catch (const std::exception& e) {
      status = Error{Code::kInternal, fmt::format("loading a sample: {}", e.what())};
    }
    finish(*claimed, std::move(status));
  }
}

void PooledLoader::start_slot() {
  auto slot = std::make_shared<Slot>();
  slot->batch = empty_batch(next_position_, share_size(), options_.image_size);
  slot->remaining_count = share_size();
  if (!spare_images_.empty()) {
    slot->batch.images = std::move(spare_images_.back());
    spare_images_.pop_back();
  }
  slots_.push_back(std::move(slot));
  if (++next_position_.batch == plan_.batches_per_epoch())
    next_position_ = {next_position_.epoch + 1, 0};
}

// The next sample in the order of the stream; nullopt at the end.
std::optional<PooledLoader::Claim> PooledLoader::take_claim() {
  std::unique_lock lock(mutex_);
  while (true) {
    if (is_ending_) return std::nullopt;
    // Only the last slot may have samples left to claim.
    if (!slots_.empty() && slots_.back()->claimed_count < share_size())
      return Claim{slots_.back(), slots_.back()->claimed_count++, 0};
    if (slots_.size() < size_t(options_.prefetch_batch_count))
      start_slot();
    else
      work_changed_.wait(lock);
  }
}

void PooledLoader::finish(const Claim& claim, Status status) {
  std::lock_guard lock(mutex_);
  Slot& slot = *claim.slot;
  if (!status && (!slot.failed || claim.index < slot.failed->first))
    slot.failed.emplace(claim.index, status.error());
  slot.skipped_count += claim.skipped_count;
  if (--slot.remaining_count == 0) batch_changed_.notify_one();
}

Status PooledLoader::load(Claim& claim, Scratch& scratch) {
  Batch& batch = claim.slot->batch;
  // Outside the lock: new pages cost milliseconds.
  std::call_once(claim.slot->allocated,
                 [&] { batch.images.resize(size_t(batch.size) * image_floats()); });
  const auto share =
      plan_.share(batch.position.batch, uint64_t(options_.rank), uint64_t(options_.world_size));
  const uint64_t position = share.begin + uint64_t(claim.index);
  const auto candidate = [&](int64_t attempt) {
    return plan_.sample_at(batch.position.epoch,
                           (position + uint64_t(attempt)) % plan_.training_count());
  };
  return load_into(batch, claim.index, candidate, sample_count(), true, scratch,
                   claim.skipped_count);
}

Status PooledLoader::load_into(Batch& batch, int64_t index, const Candidate& candidate,
                               int64_t candidate_count, bool is_training, Scratch& scratch,
                               int64_t& skipped_count) {
  const size_t i = size_t(index);
  const auto pixels = std::span(batch.images).subspan(i * image_floats(), image_floats());
  const int64_t attempt_count = std::min(candidate_count, kBadInARowMax);
  std::optional<Error> last;
  for (int64_t attempt = 0; attempt < attempt_count; ++attempt) {
    const uint64_t id = candidate(attempt);
    const Draw how = is_training ? draw(batch.position.epoch, id) : Draw{};
    auto loaded = decoder_.load(id, how, scratch, pixels, batch.captions[i]);
    if (loaded) {
      batch.sample_ids[i] = id;
      batch.keys[i] = set_.key(set_.place(id));
      return Ok{};
    }
    if (options_.bad_samples == BadSamplePolicy::kFail ||
        !decoder_.is_bad_sample(loaded.error(), id))
      return loaded;
    ++skipped_count;
    log_bad_sample(loaded.error());
    last = loaded.error();
  }
  return Error{Code::kCorrupt, fmt::format("{} samples in a row are bad; the last: {}",
                                           attempt_count, last->message)};
}

void PooledLoader::log_bad_sample(const Error& error) {
  const int64_t line = ++bad_sample_line_count_;
  if (line <= kBadSampleLinesMax) log_warning("skipped: {}", error.message);
  if (line == kBadSampleLinesMax) log_warning("further skipped samples are only counted");
}

void PooledLoader::note_skipped(int64_t count) {
  skipped_count_ += count;
  skipped_counter_.add(double(count));
}

Draw PooledLoader::draw(uint64_t epoch, uint64_t sample_id) const {
  Draw draw;
  if (options_.random_crop) {
    draw.x = random_uniform(options_.seed, kCropStream | epoch, sample_id * 2);
    draw.y = random_uniform(options_.seed, kCropStream | epoch, sample_id * 2 + 1);
  }
  if (options_.random_flip)
    draw.flip = random_u64(options_.seed, kFlipStream | epoch, sample_id) % 2 == 1;
  return draw;
}

Result<Batch> PooledLoader::next(const StopToken& stop) {
  if (failed_) return *failed_;
  const auto begin = Clock::real().now();
  std::unique_lock lock(mutex_);
  const auto is_ready = [&] { return !slots_.empty() && slots_.front()->remaining_count == 0; };
  while (!is_ready()) {
    if (stop.stopped()) return Error{Code::kCancelled, "waiting for a batch was stopped"};
    batch_changed_.wait_for(lock, kStopPollInterval, is_ready);
  }
  const std::shared_ptr<Slot> slot = std::move(slots_.front());
  slots_.pop_front();
  lock.unlock();
  work_changed_.notify_all();
  const double waited = std::chrono::duration<double>(Clock::real().now() - begin).count();
  wait_seconds_ += waited;
  wait_counter_.add(waited);
  note_skipped(slot->skipped_count);
  if (slot->failed) {
    failed_ = std::move(slot->failed->second);
    return *failed_;
  }
  samples_counter_.add(double(slot->batch.size));
  return std::move(slot->batch);
}

Result<Batch> PooledLoader::held_out(int64_t begin, int64_t count) {
  const int64_t held_out_count = options_.held_out_count;
  if (begin < 0 || count < 1 || begin > held_out_count || count > held_out_count - begin)
    return invalid(fmt::format("held-out samples {}..{} were asked for; there are {}", begin,
                               begin + count, held_out_count));
  Batch batch = empty_batch({}, count, options_.image_size);
  batch.images.resize(size_t(count) * image_floats());
  for (int64_t i = 0; i < count; ++i) {
    int64_t skipped_count = 0;
    const auto candidate = [&](int64_t attempt) {
      return plan_.held_out(uint64_t((begin + i + attempt) % held_out_count));
    };
    YARD_TRY(
        load_into(batch, i, candidate, held_out_count, false, held_out_scratch_, skipped_count));
    note_skipped(skipped_count);
  }
  return batch;
}

}  // namespace

Result<std::unique_ptr<Loader>> Loader::open(storage::ObjectStore& store,
                                             const LoaderOptions& options, const LoaderState& start,
                                             CounterRegistry& counters) {
  YARD_TRY(check_options(options));
  YARD_ASSIGN(DataSet set, DataSet::open(store, options));
  if (options.bad_samples == BadSamplePolicy::kFail) YARD_TRY(set.check_all());
  shards::SamplePlanOptions plan_options;
  plan_options.seed = options.seed;
  plan_options.sample_count = set.sample_count();
  plan_options.held_out_count = uint64_t(options.held_out_count);
  plan_options.global_batch_size = uint64_t(options.global_batch_size);
  YARD_ASSIGN(const auto plan, shards::SamplePlan::create(plan_options));
  // One past the last batch is where an epoch's end leaves a reader.
  if (start.batch > plan.batches_per_epoch() || start.epoch >= UINT32_MAX)
    return invalid(fmt::format("epoch {}, batch {} is no place in a data set of {} batches",
                               start.epoch, start.batch, plan.batches_per_epoch()));
  const bool at_end = start.batch == plan.batches_per_epoch();
  const LoaderState from = at_end ? LoaderState{start.epoch + 1, 0} : start;
  return std::unique_ptr<Loader>(
      std::make_unique<PooledLoader>(options, std::move(set), plan, from, counters));
}

}  // namespace yard::loader
