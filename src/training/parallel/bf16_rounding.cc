#include "parallel/bf16_rounding.h"

#include <array>
#include <bit>

#include "base/random.h"
#include "base/result.h"

namespace yard::parallel {
namespace {

constexpr uint64_t kDrawsPerBlock = 8;  // 16 bits each
constexpr uint32_t kExponent = 0x7F80'0000;
constexpr uint32_t kQuietNan = 0x0040'0000;

uint16_t rounded(float value, uint32_t draw16) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & kExponent) != kExponent) return static_cast<uint16_t>((bits + draw16) >> 16);
  const bool is_nan = (bits & ~kExponent & 0x7FFF'FFFF) != 0;
  if (is_nan) bits |= kQuietNan;  // the bits that say so may be among those cut off
  return static_cast<uint16_t>(bits >> 16);
}

}  // namespace

void round_stochastically(std::span<const float> in, std::span<uint16_t> out,
                          const RoundingDraws& draws) {
  YARD_CHECK(in.size() == out.size());
  const uint64_t seed = draws.seed ^ (draws.step * 0x9E37'79B9'7F4A'7C15);
  const std::array<uint32_t, 2> key = {static_cast<uint32_t>(seed),
                                       static_cast<uint32_t>(seed >> 32)};
  const auto stream = static_cast<uint32_t>(draws.parameter);
  std::array<uint32_t, 4> words{};
  for (size_t i = 0; i < in.size(); ++i) {
    const uint64_t element = draws.begin + i;
    const uint64_t block = element / kDrawsPerBlock, lane = element % kDrawsPerBlock;
    if (i == 0 || lane == 0)
      words = philox({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), stream,
                      static_cast<uint32_t>(draws.parameter >> 32)},
                     key);
    const uint32_t word = words[lane / 2];
    out[i] = rounded(in[i], lane % 2 == 0 ? word & 0xFFFF : word >> 16);
  }
}

}  // namespace yard::parallel
