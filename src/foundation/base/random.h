// Counter-based random numbers: a value is a pure function of (seed, counters), the same on every
// machine, for any number of ranks and threads, with no state to save.
#pragma once

#include <array>
#include <cstdint>

namespace yard {

// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// One 64-bit value for (seed, stream, index); well mixed, so nearby arguments are independent.
uint64_t random_u64(uint64_t seed, uint64_t stream, uint64_t index);
// Uniform in [0, 1) with 53 random bits.
double random_uniform(uint64_t seed, uint64_t stream, uint64_t index);
// Uniform in [0, bound), unbiased to within 2^-64. bound > 0.
uint64_t random_below(uint64_t bound, uint64_t seed, uint64_t stream, uint64_t index);

// A permutation of [0, count) evaluated one element at a time in O(1) memory (Feistel network with
// cycle walking, keyed by (seed, stream)): permute(i) for i in [0, count) visits each value once.
class RandomPermutation {
 public:
  RandomPermutation(uint64_t count, uint64_t seed, uint64_t stream);
  uint64_t permute(uint64_t index) const;  // index < count
  uint64_t count() const { return count_; }

 private:
  uint64_t count_;
  uint64_t seed_;
  uint64_t stream_;
  unsigned half_bits_;
};

}  // namespace yard
