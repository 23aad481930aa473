#include "images/mix_internal.h"

#include <algorithm>

// Highway compiles this file once per target.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "images/mix.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace yard::images::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// All taps of a few lanes before the next lanes: the sums stay in a register.
void mix_rows(std::span<const uint8_t* const> rows, const float* weights, size_t count,
              float* sums) {
  const hn::ScalableTag<float> lanes;
  const hn::Rebind<int32_t, decltype(lanes)> wide;
  const hn::Rebind<uint8_t, decltype(lanes)> bytes;
  const size_t step = hn::Lanes(lanes);
  size_t i = 0;
  for (; i + step <= count; i += step) {
    auto sum = hn::Zero(lanes);
    for (size_t t = 0; t < rows.size(); ++t) {
      const auto levels = hn::ConvertTo(lanes, hn::PromoteTo(wide, hn::LoadU(bytes, rows[t] + i)));
      sum = hn::MulAdd(hn::Set(lanes, weights[t]), levels, sum);
    }
    hn::StoreU(sum, lanes, sums + i);
  }
  for (; i < count; ++i) {
    sums[i] = 0;
    for (size_t t = 0; t < rows.size(); ++t) sums[i] += weights[t] * float(rows[t][i]);
  }
}

// Four lanes for three channels: one vector instruction does a tap. Two sums hide its latency.
void mix_columns(const float* row, std::span<const int64_t> first, const float* weights,
                 int64_t tap_count, float* out) {
  const hn::CappedTag<float, 4> pixel;
  HWY_ALIGN float sums[4] = {};
  for (const int64_t begin : first) {
    const float* in = row + begin * 3;
    auto even = hn::Zero(pixel), odd = hn::Zero(pixel);
    int64_t t = 0;
    for (; t + 2 <= tap_count; t += 2, in += 6) {
      even = hn::MulAdd(hn::Set(pixel, weights[t]), hn::LoadU(pixel, in), even);
      odd = hn::MulAdd(hn::Set(pixel, weights[t + 1]), hn::LoadU(pixel, in + 3), odd);
    }
    if (t < tap_count) even = hn::MulAdd(hn::Set(pixel, weights[t]), hn::LoadU(pixel, in), even);
    hn::Store(hn::Add(even, odd), pixel, sums);
    std::copy_n(sums, 3, out);
    out += 3;
    weights += tap_count;
  }
}

}  // namespace yard::images::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace yard::images {

HWY_EXPORT(mix_rows);
HWY_EXPORT(mix_columns);

void mix_rows(std::span<const uint8_t* const> rows, const float* weights, size_t count,
              float* sums) {
  HWY_DYNAMIC_DISPATCH(mix_rows)(rows, weights, count, sums);
}

void mix_columns(const float* row, std::span<const int64_t> first, const float* weights,
                 int64_t tap_count, float* out) {
  HWY_DYNAMIC_DISPATCH(mix_columns)(row, first, weights, tap_count, out);
}

}  // namespace yard::images
#endif
