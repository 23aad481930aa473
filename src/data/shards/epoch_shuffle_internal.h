// EpochShuffle: a permutation of [0, count) that changes with the epoch. Pure, O(1) in memory.
//
// Of few items it is a full permutation. Of more it is bounded, so that storage sees runs of
// neighbours: blocks of `block_size` neighbouring items are permuted over the whole epoch, then
// items within windows of `window_size`. Where blocks begin moves with the epoch, so that
// neighbours change.
#pragma once

#include <cstdint>

namespace yard::shards {

struct EpochShuffle {
  uint64_t seed = 0;
  uint64_t count = 0;
  uint64_t block_size = 1;
  uint64_t window_size = 1;  // a multiple of block_size

  uint64_t window_end(uint64_t position) const;          // of the window that a position lies in
  uint64_t at(uint64_t epoch, uint64_t position) const;  // epoch < 2^32, position < count
};

}  // namespace yard::shards
