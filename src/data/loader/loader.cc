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
#include "loader/loader_options_internal.h"
#include "loader/quarantine_internal.h"
#include "loader/rank_share_internal.h"
#include "loader/read_ahead_internal.h"
#include "loader/sample_decoder_internal.h"
#include "telemetry/metric_names.h"

namespace yard::loader {
namespace {

// Streams of random numbers; their lower half is the epoch.
constexpr uint64_t kCropStream = uint64_t{0x6c647231} << 32;
constexpr uint64_t kFlipStream = uint64_t{0x6c647232} << 32;
constexpr int64_t kBadInARowMax = 1000;  // then the data set is bad, not a sample
constexpr auto kStopPollInterval = std::chrono::milliseconds(50);

double seconds_since(Clock::Monotonic begin) {
  return std::chrono::duration<double>(Clock::real().now() - begin).count();
}

// A batch in the making. Its samples are claimed one by one by the threads.
struct Slot {
  Batch batch;
  uint64_t number = 0;  // of the batch, since the loader was opened
  std::once_flag allocated;
  RankShare::Places places;     // in the plan's batch; as the memory, once allocated
  int64_t claimed_count = 0;    // under the loader's mutex, as is all below
  int64_t remaining_count = 0;  // not yet loaded
  int64_t skipped_count = 0;
  std::optional<std::pair<int64_t, Error>> failed;  // of the first sample that failed
};

// The sample to try after `attempt` bad ones.
using Candidate = std::function<uint64_t(int64_t attempt)>;

class PooledLoader final : public Loader {
 public:
  PooledLoader(const LoaderOptions& options, std::unique_ptr<DataSet> set, shards::SamplePlan plan,
               const LoaderState& start, std::unique_ptr<Quarantine> quarantine,
               CounterRegistry& counters)
      : options_(options),
        set_(std::move(set)),
        plan_(std::move(plan)),
        share_(plan_, options_),
        quarantine_(std::move(quarantine)),
        reader_(*set_, options_, stop_.token(), counters, meters_),
        decoder_(*set_, options_, counters, meters_),
        samples_counter_(counters.counter(metric::kLoaderSamples)),
        skipped_counter_(counters.counter(metric::kLoaderSkippedSamples)),
        wait_counter_(counters.counter(metric::kLoaderConsumerWaitSeconds)),
        first_position_(start),
        next_position_(start) {
    if (set_->is_remote())
      read_ahead_.emplace(
          reader_, [this](uint64_t number) { return sample_of(number); },
          ReadAhead::Limits{options_.read_ahead_bytes_max, window_end_of()});
    for (int i = 0; i < options_.thread_count; ++i) threads_.emplace_back([this] { work(); });
  }

  ~PooledLoader() override {
    {
      std::lock_guard lock(mutex_);
      is_ending_ = true;
    }
    stop_.request();
    work_changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  Result<Batch> next(const StopToken& stop) override;
  bool wait_for(std::chrono::milliseconds timeout) override;
  Result<Batch> held_out(int64_t begin, int64_t count) override;

  void recycle(PixelBuffer images) override {
    if (options_.allocator) return;
    std::lock_guard lock(mutex_);
    if (spare_images_.size() < size_t(options_.prefetch_batch_count))
      spare_images_.push_back(std::move(images));
  }

  int64_t sample_count() const override { return int64_t(plan_.training_count()); }
  int64_t batches_per_epoch() const override { return int64_t(plan_.batches_per_epoch()); }
  double wait_seconds() const override { return wait_seconds_; }
  int64_t skipped_count() const override { return skipped_count_; }
  LoaderReport report() const override;

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
                   const std::function<Status(uint64_t, Scratch&)>& read_first, Scratch& scratch,
                   int64_t& skipped_count, bool is_training);
  Status fill(Batch& batch, int64_t index, uint64_t id, const Draw& draw, Scratch& scratch);
  void prepare(Batch& batch) const;
  images::Size image_size(const LoaderState& position) const;
  Draw draw(uint64_t epoch, uint64_t sample_id) const;
  LoaderState position_after(LoaderState position, uint64_t batch_count) const;
  std::optional<uint64_t> sample_of(uint64_t number) const;
  std::function<uint64_t(uint64_t)> window_end_of() const;
  void note_skipped(int64_t count);
  void note_wait(Clock::Monotonic begin);

  uint64_t share_size() const { return share_.size(); }
  size_t bytes_per_image(images::Size size) const {
    return 3 * size_t(size.width) * size_t(size.height) * images::size_bytes(options_.render.type);
  }

  const LoaderOptions options_;
  const StopSource stop_;
  LoaderMeters meters_;
  const std::unique_ptr<DataSet> set_;
  const shards::SamplePlan plan_;
  const RankShare share_;
  const std::unique_ptr<Quarantine> quarantine_;
  SampleReader reader_;
  SampleDecoder decoder_;
  Counter& samples_counter_;
  Counter& skipped_counter_;
  Counter& wait_counter_;
  const Clock::Monotonic begin_ = Clock::real().now();
  int64_t skipped_count_ = 0;  // the consumer's, as all until the mutex
  int64_t given_count_ = 0;    // samples
  double wait_seconds_ = 0;
  Scratch held_out_scratch_;
  std::optional<Error> failed_;  // what next() gives from now on

  std::mutex mutex_;
  std::condition_variable work_changed_;     // there may be a sample to claim, or the end
  std::condition_variable batch_changed_;    // the front slot may be whole
  std::deque<std::shared_ptr<Slot>> slots_;  // front: the next to hand over
  const LoaderState first_position_;
  LoaderState next_position_;  // of the slot that is started next
  uint64_t next_number_ = 0;
  std::vector<PixelBuffer> spare_images_;
  bool is_ending_ = false;
  std::optional<ReadAhead> read_ahead_;  // where the store is remote
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

// After so many batches of our turn.
LoaderState PooledLoader::position_after(LoaderState position, uint64_t batch_count) const {
  const auto turn = uint64_t(options_.turn), turn_count = uint64_t(options_.turn_count);
  const uint64_t per_epoch = (plan_.batches_per_epoch() - turn + turn_count - 1) / turn_count;
  const uint64_t number = position.batch / turn_count + batch_count;
  return {position.epoch + number / per_epoch, number % per_epoch * turn_count + turn};
}

// Of the samples of this rank, counted from the first position; for the reading ahead.
std::optional<uint64_t> PooledLoader::sample_of(uint64_t number) const {
  const LoaderState at = position_after(first_position_, number / share_size());
  const uint64_t place = (*share_.places(at))[number % share_size()];
  const uint64_t id = plan_.at(at.epoch, at.batch, place).sample;
  if (decoder_.is_cached(id)) return std::nullopt;
  return id;
}

std::function<uint64_t(uint64_t)> PooledLoader::window_end_of() const {
  if (!share_.window_end(0)) return nullptr;
  return [this](uint64_t number) {
    const uint64_t epoch_size = plan_.batches_per_epoch() * share_size();
    const uint64_t in_epoch = (first_position_.batch * share_size() + number) % epoch_size;
    return number + *share_.window_end(in_epoch) - in_epoch;
  };
}

images::Size PooledLoader::image_size(const LoaderState& position) const {
  if (options_.aspect_buckets.empty()) return {options_.image_size, options_.image_size};
  return options_.aspect_buckets[plan_.bucket(position.epoch, position.batch)];
}

void PooledLoader::start_slot() {
  auto slot = std::make_shared<Slot>();
  Batch& batch = slot->batch;
  batch.position = next_position_;
  batch.size = int64_t(share_size());
  batch.first_sample_number =
      (next_position_.epoch * plan_.batches_per_epoch() + next_position_.batch) *
      uint64_t(options_.global_batch_size);
  slot->number = next_number_++;
  slot->remaining_count = batch.size;
  if (options_.allocator) {
    batch.images = PixelBuffer(options_.allocator);
  } else if (!spare_images_.empty() && !options_.raw) {
    batch.images = std::move(spare_images_.back());
    spare_images_.pop_back();
  }
  slots_.push_back(std::move(slot));
  next_position_ = position_after(next_position_, 1);
}

// The next sample in the order of the stream; nullopt at the end.
std::optional<PooledLoader::Claim> PooledLoader::take_claim() {
  std::unique_lock lock(mutex_);
  while (true) {
    if (is_ending_) return std::nullopt;
    // Only the last slot may have samples left to claim.
    if (!slots_.empty() && slots_.back()->claimed_count < slots_.back()->batch.size)
      return Claim{slots_.back(), slots_.back()->claimed_count++, 0};
    if (slots_.size() < size_t(options_.prefetch_batch_count)) {
      start_slot();
      continue;
    }
    const auto begin = Clock::real().now();
    work_changed_.wait(lock);
    meters_.idle_seconds.add(seconds_since(begin));
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

// Memory for what the samples are; its position and size are known.
void PooledLoader::prepare(Batch& batch) const {
  const auto size = size_t(batch.size);
  batch.keys.resize(size);
  batch.sample_ids.resize(size);
  batch.is_padding.resize(size);
  if (options_.raw) return batch.samples.resize(size);
  if (!options_.caption_member.empty()) batch.captions.resize(size);
  batch.images.resize(size * bytes_per_image(batch.image_size));
}

Status PooledLoader::load(Claim& claim, Scratch& scratch) {
  Batch& batch = claim.slot->batch;
  // Outside the lock: new pages cost milliseconds.
  std::call_once(claim.slot->allocated, [&] {
    claim.slot->places = share_.places(batch.position);
    batch.image_size = options_.raw ? images::Size{} : image_size(batch.position);
    prepare(batch);
  });
  const uint64_t place = (*claim.slot->places)[size_t(claim.index)];
  const auto candidate = [&](int64_t attempt) {
    return plan_.at(batch.position.epoch, batch.position.batch, place, uint64_t(attempt)).sample;
  };
  batch.is_padding[size_t(claim.index)] =
      plan_.at(batch.position.epoch, batch.position.batch, place).is_padding ? 1 : 0;
  const auto read_first = [&](uint64_t id, Scratch& into) -> Status {
    const auto begin = Clock::real().now();
    Status status = Ok{};
    bool is_read = false;
    if (read_ahead_) {
      auto taken = read_ahead_->take(claim.slot->number * share_size() + uint64_t(claim.index));
      if (!taken) {
        status = std::move(taken).error();
        is_read = true;
      } else if (*taken) {
        into.sample = std::move(**taken);
        is_read = true;
      }
    }
    if (!is_read && !decoder_.is_cached(id)) status = reader_.read(id, into.sample);
    meters_.read_wait_seconds.add(seconds_since(begin));
    return status;
  };
  return load_into(batch, claim.index, candidate, sample_count(), read_first, scratch,
                   claim.skipped_count, true);
}

// The first of the candidates that is good.
Status PooledLoader::load_into(Batch& batch, int64_t index, const Candidate& candidate,
                               int64_t candidate_count,
                               const std::function<Status(uint64_t, Scratch&)>& read_first,
                               Scratch& scratch, int64_t& skipped_count, bool is_training) {
  const int64_t attempt_count = std::min(candidate_count, kBadInARowMax);
  std::optional<Error> last;
  for (int64_t attempt = 0; attempt < attempt_count; ++attempt) {
    const uint64_t id = candidate(attempt);
    const Draw how = is_training ? draw(batch.position.epoch, id) : Draw{};
    Status loaded = Ok{};
    if (attempt == 0)
      loaded = read_first(id, scratch);
    else if (!decoder_.is_cached(id))
      loaded = reader_.read(id, scratch.sample);
    if (loaded) loaded = fill(batch, index, id, how, scratch);
    if (loaded) return Ok{};
    if (options_.bad_samples == BadSamplePolicy::kFail ||
        !reader_.is_bad_sample(loaded.error(), id))
      return loaded;
    ++skipped_count;
    quarantine_->add(id, loaded.error());
    last = loaded.error();
  }
  return Error{Code::kCorrupt, fmt::format("{} samples in a row are bad; the last: {}",
                                           attempt_count, last->message)};
}

Status PooledLoader::fill(Batch& batch, int64_t index, uint64_t id, const Draw& draw,
                          Scratch& scratch) {
  const auto i = size_t(index);
  batch.sample_ids[i] = id;
  if (options_.raw) {
    batch.keys[i] = set_->key(scratch.sample.place);
    batch.samples[i] = reader_.raw_sample(std::move(scratch.sample));
    return Ok{};
  }
  const size_t bytes = bytes_per_image(batch.image_size);
  std::string no_caption;
  const SampleSlot slot{batch.image_size, batch.images.bytes().subspan(i * bytes, bytes),
                        batch.captions.empty() ? no_caption : batch.captions[i], batch.keys[i]};
  if (decoder_.fill_from_cache(id, draw, slot)) return Ok{};
  return decoder_.fill(id, scratch.sample, draw, scratch.pictures, slot);
}

void PooledLoader::note_skipped(int64_t count) {
  skipped_count_ += count;
  skipped_counter_.add(double(count));
}

Draw PooledLoader::draw(uint64_t epoch, uint64_t sample_id) const {
  Draw draw;
  if (options_.random_resized_crop) {
    draw.resized_seed = random_u64(options_.seed, kCropStream | epoch, sample_id);
    return draw;
  }
  if (options_.random_crop) {
    draw.x = random_uniform(options_.seed, kCropStream | epoch, sample_id * 2);
    draw.y = random_uniform(options_.seed, kCropStream | epoch, sample_id * 2 + 1);
  }
  if (options_.random_flip)
    draw.flip = random_u64(options_.seed, kFlipStream | epoch, sample_id) % 2 == 1;
  return draw;
}

bool PooledLoader::wait_for(std::chrono::milliseconds timeout) {
  if (failed_) return true;
  const auto begin = Clock::real().now();
  std::unique_lock lock(mutex_);
  const bool is_ready = batch_changed_.wait_for(
      lock, timeout, [&] { return !slots_.empty() && slots_.front()->remaining_count == 0; });
  lock.unlock();
  note_wait(begin);
  return is_ready;
}

void PooledLoader::note_wait(Clock::Monotonic begin) {
  const double waited = seconds_since(begin);
  wait_seconds_ += waited;
  wait_counter_.add(waited);
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
  note_wait(begin);
  note_skipped(slot->skipped_count);
  if (slot->failed) {
    failed_ = std::move(slot->failed->second);
    return *failed_;
  }
  given_count_ += slot->batch.size;
  samples_counter_.add(double(slot->batch.size));
  return std::move(slot->batch);
}

Result<Batch> PooledLoader::held_out(int64_t begin, int64_t count) {
  const int64_t held_out_count = options_.held_out_count;
  if (begin < 0 || count < 1 || begin > held_out_count || count > held_out_count - begin)
    return Error{Code::kInvalidArgument,
                 fmt::format("held-out samples {}..{} were asked for; there are {}", begin,
                             begin + count, held_out_count)};
  Batch batch;
  batch.size = count;
  batch.image_size = {options_.image_size, options_.image_size};
  prepare(batch);
  for (int64_t i = 0; i < count; ++i) {
    int64_t skipped_count = 0;
    const auto candidate = [&](int64_t attempt) {
      return plan_.held_out(uint64_t((begin + i + attempt) % held_out_count));
    };
    const auto read = [&](uint64_t id, Scratch& into) -> Status {
      if (decoder_.is_cached(id)) return Ok{};
      return reader_.read(id, into.sample);
    };
    YARD_TRY(load_into(batch, i, candidate, held_out_count, read, held_out_scratch_, skipped_count,
                       false));
    note_skipped(skipped_count);
  }
  return batch;
}

LoaderReport PooledLoader::report() const {
  return {.seconds = seconds_since(begin_),
          .consumer_wait_seconds = wait_seconds_,
          .decode_seconds = meters_.decode_seconds.value(),
          .read_wait_seconds = meters_.read_wait_seconds.value(),
          .idle_seconds = meters_.idle_seconds.value(),
          .thread_count = options_.thread_count,
          .sample_count = given_count_,
          .read_bytes = uint64_t(meters_.read_bytes.value())};
}

}  // namespace

Result<std::unique_ptr<Loader>> Loader::open(storage::ObjectStore& store,
                                             const LoaderOptions& given, const LoaderState& start,
                                             CounterRegistry& counters) {
  YARD_TRY(check_options(given));
  LoaderOptions options = given;
  if (options.random_resized_crop)
    options.random_resized_crop->flip_probability = options.random_flip ? 0.5 : 0;
  YARD_ASSIGN(auto quarantine, Quarantine::open(options.quarantine_path));
  YARD_ASSIGN(auto set, DataSet::open(store, options));
  if (set->sample_count() == 0) return Error{Code::kInvalidArgument, "the shards have no samples"};
  if (options.bad_samples == BadSamplePolicy::kFail) YARD_TRY(set->check_all());
  YARD_ASSIGN(const auto plan_options, plan_options_of(*set, options, *quarantine, counters));
  YARD_ASSIGN(auto plan, shards::SamplePlan::create(plan_options));
  if (plan.unused_count() > 0)
    log_warning("{} samples are in aspect buckets that fill no batch of {}; they are not used",
                plan.unused_count(), plan_options.global_batch_size);
  // One past the last batch is where an epoch's end leaves a reader.
  if (start.batch > plan.batches_per_epoch() || start.epoch >= UINT32_MAX)
    return Error{Code::kInvalidArgument,
                 fmt::format("epoch {}, batch {} is no place in a data set of {} batches",
                             start.epoch, start.batch, plan.batches_per_epoch())};
  const auto turn = uint64_t(options.turn);
  if (turn >= plan.batches_per_epoch())
    return Error{Code::kInvalidArgument,
                 fmt::format("no batch of an epoch of {} is of turn {} of {}",
                             plan.batches_per_epoch(), turn, options.turn_count)};
  const bool at_end = start.batch == plan.batches_per_epoch();
  const LoaderState from = at_end ? LoaderState{start.epoch + 1, turn} : start;
  if (from.batch % uint64_t(options.turn_count) != turn)
    return Error{Code::kInvalidArgument, fmt::format("batch {} is not of turn {} of {}", from.batch,
                                                     turn, options.turn_count)};
  return std::unique_ptr<Loader>(std::make_unique<PooledLoader>(
      options, std::move(set), std::move(plan), from, std::move(quarantine), counters));
}

}  // namespace yard::loader
