#include <algorithm>

#include "base/random.h"
#include "base/result.h"
#include "shards/epoch_shuffle_internal.h"

namespace yard::shards {
namespace {

// Streams of random numbers, one per purpose. Their lower half is the epoch.
constexpr uint64_t kRotationStream = uint64_t{0x73687531} << 32;
constexpr uint64_t kBlockStream = uint64_t{0x73687532} << 32;
constexpr uint64_t kWindowStream = uint64_t{0x73687533} << 32;

}  // namespace

uint64_t EpochShuffle::window_end(uint64_t position) const {
  const uint64_t window_count = std::max<uint64_t>(1, count / window_size);
  const uint64_t window = position / window_size;
  return window + 1 < window_count ? (window + 1) * window_size : count;
}

uint64_t EpochShuffle::at(uint64_t epoch, uint64_t position) const {
  YARD_CHECK(position < count && epoch < (uint64_t{1} << 32));
  // The last window takes in the rest that fills none of its own, so that no window is too short
  // to mix.
  const uint64_t window_count = std::max<uint64_t>(1, count / window_size);
  if (window_count == 1)
    return RandomPermutation(count, seed, kBlockStream | epoch).permute(position);

  const uint64_t window = std::min(position / window_size, window_count - 1);
  const uint64_t begin = window * window_size;
  const uint64_t size = window + 1 < window_count ? window_size : count - begin;
  const uint64_t window_seed = random_u64(seed, kWindowStream | epoch, window);
  position = begin + RandomPermutation(size, window_seed, 0).permute(position - begin);

  // Whole blocks change places; the items after the last whole block stay behind it. With blocks
  // counted from a new start each epoch, around the end, those are others each time.
  const uint64_t block_count = count / block_size;
  const uint64_t block = position / block_size;
  if (block < block_count)
    position =
        RandomPermutation(block_count, seed, kBlockStream | epoch).permute(block) * block_size +
        position % block_size;
  const uint64_t rotation = random_below(count, seed, kRotationStream | epoch, 0);
  return (position + rotation) % count;
}

}  // namespace yard::shards
