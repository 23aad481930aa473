#include "tensor/normal.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "base/random.h"
#include "base/result.h"

namespace yard::tensor {
namespace {

// Keeps these draws apart from other users of the same seed.
constexpr uint64_t kSalt = 0x6472'6177'206b'6579;

// Seed, purpose and step make the key, sample and element the counter: a Philox counter alone is
// too short for all of them.
std::array<uint32_t, 2> key_of(const Draw& draw) {
  const uint64_t key =
      random_u64(draw.seed ^ kSalt, static_cast<uint64_t>(draw.purpose), draw.step);
  return {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)};
}

std::array<uint32_t, 4> block_of(const std::array<uint32_t, 2>& key, uint64_t sample,
                                 uint64_t block) {
  return philox({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                 static_cast<uint32_t>(sample), static_cast<uint32_t>(sample >> 32)},
                key);
}

std::array<float, 2> box_muller(uint32_t a, uint32_t b) {
  const float u = static_cast<float>((a >> 8) + 1) * 0x1.0p-24F;  // (0, 1]: log stays finite
  const float angle = static_cast<float>(b >> 8) * (2 * std::numbers::pi_v<float> * 0x1.0p-24F);
  const float radius = std::sqrt(-2 * std::log(u));
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

uint64_t first_word(const Draw& draw) {
  const auto words = block_of(key_of(draw), draw.sample, 0);
  return (uint64_t{words[1]} << 32) | words[0];
}

}  // namespace

void fill_normal(const Draw& draw, std::span<float> out) {
  const auto key = key_of(draw);
  for (size_t begin = 0; begin < out.size(); begin += 4) {
    const auto words = block_of(key, draw.sample, begin / 4);
    const auto first = box_muller(words[0], words[1]);
    const auto second = box_muller(words[2], words[3]);
    const std::array<float, 4> values = {first[0], first[1], second[0], second[1]};
    std::copy_n(values.begin(), std::min<size_t>(4, out.size() - begin), out.begin() + begin);
  }
}

double draw_uniform(const Draw& draw) {
  return static_cast<double>(first_word(draw) >> 11) * 0x1.0p-53;
}

int64_t draw_below(const Draw& draw, int64_t bound) {
  YARD_CHECK(bound > 0);
  const auto value = static_cast<int64_t>(draw_uniform(draw) * static_cast<double>(bound));
  return std::min(value, bound - 1);  // the product may round up
}

}  // namespace yard::tensor
