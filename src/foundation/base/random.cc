#include "base/random.h"

#include <bit>

#include "base/result.h"

namespace yard {
namespace {

__extension__ typedef unsigned __int128 uint128_t;

constexpr uint32_t low(uint64_t value) {
  return static_cast<uint32_t>(value);
}
constexpr uint32_t high(uint64_t value) {
  return static_cast<uint32_t>(value >> 32);
}

// Keeps the rounds of a permutation apart from random_u64() of the same seed and stream.
constexpr uint64_t kPermutationSalt = 0x7065'726d'7574'6521;
// Four rounds of a random function make a Feistel network a pseudorandom permutation (Luby and
// Rackoff, 1988); two more for domains of a few elements.
constexpr uint64_t kFeistelRounds = 6;

}  // namespace

// The multipliers and Weyl constants are those of the paper, section 4.3 and its reference code.
std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * counter[0];
    const uint64_t b = uint64_t{0xCD9E8D57} * counter[2];
    counter = {high(b) ^ counter[1] ^ key[0], low(b), high(a) ^ counter[3] ^ key[1], low(a)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

uint64_t random_u64(uint64_t seed, uint64_t stream, uint64_t index) {
  const auto words =
      philox({low(index), high(index), low(stream), high(stream)}, {low(seed), high(seed)});
  return (uint64_t{words[1]} << 32) | words[0];
}

double random_uniform(uint64_t seed, uint64_t stream, uint64_t index) {
  return static_cast<double>(random_u64(seed, stream, index) >> 11) * 0x1.0p-53;
}

uint64_t random_below(uint64_t bound, uint64_t seed, uint64_t stream, uint64_t index) {
  YARD_CHECK(bound > 0);
  return static_cast<uint64_t>((uint128_t{random_u64(seed, stream, index)} * bound) >> 64);
}

RandomPermutation::RandomPermutation(uint64_t count, uint64_t seed, uint64_t stream)
    : count_(count), seed_(seed ^ kPermutationSalt), stream_(stream) {
  const unsigned bits = count < 2 ? 1 : static_cast<unsigned>(std::bit_width(count - 1));
  half_bits_ = (bits + 1) / 2;
}

uint64_t RandomPermutation::permute(uint64_t index) const {
  YARD_CHECK(index < count_);
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  // The network permutes [0, 4^half_bits), less than 4 * count: walking on until we are back
  // inside [0, count) permutes that, in less than four steps on average.
  do {
    uint64_t left = index >> half_bits_;
    uint64_t right = index & mask;
    for (uint64_t round = 0; round < kFeistelRounds; ++round) {
      const uint64_t mixed = random_u64(seed_, stream_, (round << 32) | right) & mask;
      const uint64_t next = left ^ mixed;
      left = right;
      right = next;
    }
    index = (left << half_bits_) | right;
  } while (index >= count_);
  return index;
}

}  // namespace yard
