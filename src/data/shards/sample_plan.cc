#include "shards/sample_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/random.h"

namespace yard::shards {
namespace {

// Streams of random numbers, one per purpose. Their lower half is the epoch.
constexpr uint64_t kRotationStream = uint64_t{0x73687531} << 32;
constexpr uint64_t kBlockStream = uint64_t{0x73687532} << 32;
constexpr uint64_t kWindowStream = uint64_t{0x73687533} << 32;
constexpr uint64_t kHeldOutSeed = 0x68656c64'2d6f7574;

Error invalid(std::string message) {
  return {Code::kInvalidArgument, std::move(message)};
}

}  // namespace

Result<SamplePlan> SamplePlan::create(const SamplePlanOptions& options) {
  if (options.sample_count == 0) return invalid("the data set has no samples");
  if (options.held_out_count >= options.sample_count)
    return invalid(fmt::format("{} samples are to be held out of a data set of {}",
                               options.held_out_count, options.sample_count));
  const uint64_t training_count = options.sample_count - options.held_out_count;
  if (options.global_batch_size == 0) return invalid("the batch size must be at least 1");
  if (options.global_batch_size > training_count)
    return invalid(fmt::format("a global batch of {} is larger than the data set of {} samples",
                               options.global_batch_size, training_count));
  if (options.block_size == 0 || options.window_size == 0 ||
      options.window_size % options.block_size != 0)
    return invalid(fmt::format("window_size {} is no multiple of block_size {}",
                               options.window_size, options.block_size));
  return SamplePlan(options);
}

SamplePlan::SamplePlan(const SamplePlanOptions& options)
    : options_(options), training_count_(options.sample_count - options.held_out_count) {
  for (uint64_t i = 0; i < options.held_out_count; ++i) held_out_before_.push_back(held_out(i));
  std::ranges::sort(held_out_before_);
  for (uint64_t i = 0; i < held_out_before_.size(); ++i) held_out_before_[i] -= i;
}

uint64_t SamplePlan::held_out(uint64_t i) const {
  YARD_CHECK(i < options_.held_out_count);
  return RandomPermutation(options_.sample_count, kHeldOutSeed, 0).permute(i);
}

uint64_t SamplePlan::training_sample(uint64_t number) const {
  const auto skipped = std::ranges::upper_bound(held_out_before_, number);
  return number + uint64_t(skipped - held_out_before_.begin());
}

uint64_t SamplePlan::sample_at(uint64_t epoch, uint64_t position) const {
  YARD_CHECK(position < training_count_);
  YARD_CHECK(epoch < (uint64_t{1} << 32));
  return training_sample(shuffled(epoch, position));
}

uint64_t SamplePlan::shuffled(uint64_t epoch, uint64_t position) const {
  // The last window takes in the rest that fills none of its own, so that no window is too short
  // to mix.
  const uint64_t window_count = std::max<uint64_t>(1, training_count_ / options_.window_size);
  if (window_count == 1)
    return RandomPermutation(training_count_, options_.seed, kBlockStream | epoch)
        .permute(position);

  const uint64_t window = std::min(position / options_.window_size, window_count - 1);
  const uint64_t begin = window * options_.window_size;
  const uint64_t size = window + 1 < window_count ? options_.window_size : training_count_ - begin;
  const uint64_t window_seed = random_u64(options_.seed, kWindowStream | epoch, window);
  position = begin + RandomPermutation(size, window_seed, 0).permute(position - begin);

  // Whole blocks change places; the samples after the last whole block stay behind it. With blocks
  // counted from a new start each epoch, around the end, those are others each time.
  const uint64_t block_count = training_count_ / options_.block_size;
  const uint64_t block = position / options_.block_size;
  if (block < block_count)
    position = RandomPermutation(block_count, options_.seed, kBlockStream | epoch).permute(block) *
                   options_.block_size +
               position % options_.block_size;
  const uint64_t rotation =
      random_below(training_count_, options_.seed, kRotationStream | epoch, 0);
  return (position + rotation) % training_count_;
}

SamplePlan::Share SamplePlan::share(uint64_t batch, uint64_t rank, uint64_t world_size) const {
  YARD_CHECK(batch < batches_per_epoch());
  YARD_CHECK(rank < world_size && options_.global_batch_size % world_size == 0);
  const uint64_t count = options_.global_batch_size / world_size;
  return {batch * options_.global_batch_size + rank * count, count};
}

}  // namespace yard::shards
