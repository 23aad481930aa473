#include "base/random.h"

#include <bit>

#include "base/result.h"

namespace yard {

std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  // Constants of the paper's Philox4x32.
  constexpr uint64_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = kMultiplier0 * counter[0];
    const uint64_t p1 = kMultiplier1 * counter[2];
    counter = {static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(p1),
               static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(p0)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return counter;
}

uint64_t random_u64(uint64_t seed, uint64_t stream, uint64_t index) {
  const auto out = philox({static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32),
                           static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32)},
                          {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  return uint64_t{out[1]} << 32 | out[0];
}

double random_uniform(uint64_t seed, uint64_t stream, uint64_t index) {
  return static_cast<double>(random_u64(seed, stream, index) >> 11) * 0x1p-53;
}

uint64_t random_below(uint64_t bound, uint64_t seed, uint64_t stream, uint64_t index) {
  YARD_CHECK(bound > 0);
  // High half of the 128-bit product; the bias is below bound / 2^64.
  __extension__ using Wide = unsigned __int128;
  return static_cast<uint64_t>(Wide{random_u64(seed, stream, index)} * bound >> 64);
}

RandomPermutation::RandomPermutation(uint64_t count, uint64_t seed, uint64_t stream)
    : count_(count), seed_(seed), stream_(stream) {
  YARD_CHECK(count <= uint64_t{1} << 62);
  const unsigned bits = count <= 1 ? 1 : static_cast<unsigned>(std::bit_width(count - 1));
  half_bits_ = (bits + 1) / 2;
}

uint64_t RandomPermutation::permute(uint64_t index) const {
  YARD_CHECK(index < count_);
  constexpr int kRounds = 6;
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  // The network permutes [0, 4^half_bits); walking its cycle until we are back below count_ makes
  // a permutation of [0, count_), in fewer than four steps on average.
  do {
    uint64_t left = index >> half_bits_, right = index & mask;
    for (int round = 0; round < kRounds; ++round) {
      const auto mixed =
          philox({static_cast<uint32_t>(right), static_cast<uint32_t>(right >> 32),
                  static_cast<uint32_t>(stream_), static_cast<uint32_t>(stream_ >> 32)},
                 {static_cast<uint32_t>(seed_) + static_cast<uint32_t>(round),
                  static_cast<uint32_t>(seed_ >> 32) ^ 0x5EEDF00D});
      const uint64_t next = left ^ ((uint64_t{mixed[1]} << 32 | mixed[0]) & mask);
      left = right;
      right = next;
    }
    index = left << half_bits_ | right;
  } while (index >= count_);
  return index;
}

}  // namespace yard
