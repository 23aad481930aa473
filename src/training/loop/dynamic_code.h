// DynamicCode: 256 numbers in [-1, 1] or [0, 1] that are close together near 0, by which a value
// takes one byte.
//
// "Dynamic tree quantization" of Dettmers et al. 2022 (8-bit optimizers via block-wise
// quantization): seven decades, each with twice as many steps as the one below. Immutable,
// thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace yard::loop {

class DynamicCode {
 public:
  explicit DynamicCode(bool is_signed);

  float value(uint8_t code) const { return values_[code]; }
  // The nearest number's code; `x` in the code's range or next to it. The lower one of two that are
  // as near.
  uint8_t nearest(float x) const;

 private:
  // Of the magnitude's float: exponent and the highest 7 bits of the mantissa.
  static constexpr int kBucketShift = 16;
  static constexpr size_t kBucketCount = (size_t{127} << 7) + 1;  // up to 1.0

  uint8_t lower_bound(float magnitude, const std::vector<float>& limits,
                      const std::vector<uint8_t>& starts) const;

  std::array<float, 256> values_;  // ascending
  uint8_t zero_ = 0;               // the code of 0
  // Of magnitudes, above and below 0: limits[k] is the middle between the k-th number from 0 on and
  // the next; starts[b] the first k that a magnitude of bucket b may have.
  std::vector<float> limits_above_, limits_below_;
  std::vector<uint8_t> starts_above_, starts_below_;
};

}  // namespace yard::loop
