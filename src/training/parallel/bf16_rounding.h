// Rounding f32 to bf16, to the nearest or at random.
#pragma once

#include <cstdint>
#include <span>

namespace yard::parallel {

// Which random numbers: those of element `begin` and the following ones of a parameter.
struct RoundingDraws {
  uint64_t seed = 0;
  uint64_t step = 0;
  uint64_t parameter = 0;
  uint64_t begin = 0;
};

// `out` gets the bits of each value of `in`, of equal length, as bf16: one of its two neighbours,
// the nearer with the larger probability, so that the mean over draws is the value itself. Infinite
// and NaN stay what they are. Thread-safe.
void round_stochastically(std::span<const float> in, std::span<uint16_t> out,
                          const RoundingDraws& draws);

}  // namespace yard::parallel
