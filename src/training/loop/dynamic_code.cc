#include "loop/dynamic_code.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/result.h"

namespace yard::loop {
namespace {

constexpr int kDecades = 7;

// The positive numbers, ascending: in each decade the middles of equal parts of [0.1, 1]. With
// signs both 1 and -1 are there, unlike in the paper, so that a block's largest value keeps its
// place and numbers that were read give the same codes again; the lowest decade's one number is
// left out.
std::vector<float> positive_numbers(bool is_signed) {
  std::vector<float> out;
  for (int decade = is_signed ? 1 : 0; decade < kDecades; ++decade) {
    const int parts = 1 << (is_signed ? decade : decade + 1);
    const double scale = std::pow(10.0, decade - (kDecades - 1));
    for (int i = 0; i < parts; ++i)
      out.push_back(static_cast<float>(scale * (0.1 + 0.9 * (i + 0.5) / parts)));
  }
  out.push_back(1);
  return out;
}

// Distances from 0 at which the nearest of `numbers` (ascending from 0 on) changes.
std::vector<float> limits_of(const std::vector<float>& numbers) {
  std::vector<float> limits;
  for (size_t i = 0; i + 1 < numbers.size(); ++i)
    limits.push_back((numbers[i] + numbers[i + 1]) / 2);
  return limits;
}

}  // namespace

DynamicCode::DynamicCode(bool is_signed) {
  const std::vector<float> positive = positive_numbers(is_signed);
  std::vector<float> all = {0};
  all.insert(all.end(), positive.begin(), positive.end());
  if (is_signed)
    for (const float value : positive) all.push_back(-value);
  std::sort(all.begin(), all.end());
  YARD_CHECK(all.size() <= values_.size());
  // Codes left over say the largest number once more.
  values_.fill(1);
  std::copy(all.begin(), all.end(), values_.begin());
  zero_ = static_cast<uint8_t>(std::find(all.begin(), all.end(), 0.0F) - all.begin());

  const auto fill = [](const std::vector<float>& limits, std::vector<uint8_t>& starts) {
    for (size_t b = 0; b < kBucketCount; ++b) {
      const auto lowest = std::bit_cast<float>(static_cast<uint32_t>(b) << kBucketShift);
      starts.push_back(static_cast<uint8_t>(std::lower_bound(limits.begin(), limits.end(), lowest) -
                                            limits.begin()));
    }
  };
  std::vector<float> from_zero(all.begin() + zero_, all.end());
  limits_above_ = limits_of(from_zero);
  from_zero.assign(all.rend() - zero_ - 1, all.rend());
  for (float& value : from_zero) value = -value;
  limits_below_ = limits_of(from_zero);
  fill(limits_above_, starts_above_);
  fill(limits_below_, starts_below_);
}

uint8_t DynamicCode::lower_bound(float magnitude, const std::vector<float>& limits,
                                 const std::vector<uint8_t>& starts) const {
  const size_t bucket =
      std::min<size_t>(std::bit_cast<uint32_t>(magnitude) >> kBucketShift, kBucketCount - 1);
  size_t k = starts[bucket];
  while (k < limits.size() && limits[k] < magnitude) ++k;
  return static_cast<uint8_t>(k);
}

uint8_t DynamicCode::nearest(float x) const {
  if (x >= 0) return static_cast<uint8_t>(zero_ + lower_bound(x, limits_above_, starts_above_));
  return static_cast<uint8_t>(zero_ - lower_bound(-x, limits_below_, starts_below_));
}

}  // namespace yard::loop
