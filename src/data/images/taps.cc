// As Pillow's precompute_coeffs() does it: the filter is stretched by the reduction, cut off at the
// inputs that there are, and the weights made to add up to one.
#include "images/taps_internal.h"

#include <algorithm>
#include <cmath>

namespace yard::images {
namespace {

constexpr auto triangle = [](double x) { return std::max(0.0, 1.0 - std::abs(x)); };

// Keys' cubic convolution with a = -0.5, as Pillow's BICUBIC.
constexpr auto cubic = [](double x) {
  constexpr double a = -0.5;
  x = std::abs(x);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return (((x - 5) * x + 8) * x - 4) * a;
  return 0.0;
};

// Weights too small to change a level are dropped from both ends, so that no tap is wasted where
// the filter ends just at an input.
constexpr double kNothing = 1e-7;

template <typename Kernel>
void fill(const Axis& axis, int64_t low, int64_t high, double support, Kernel kernel, Taps& taps) {
  const double scale = axis.size / double(axis.scaled);
  const double stretch = std::max(scale, 1.0);
  const double inverse = 1.0 / stretch;
  const double reach = support * stretch;
  taps.stride = int64_t(std::ceil(reach)) * 2 + 2;
  taps.weights.assign(size_t(axis.count * taps.stride), 0.0F);
  for (int64_t i = 0; i < axis.count; ++i) {
    const int64_t at = axis.reversed ? axis.count - 1 - i : i;
    const double center = axis.begin + (double(axis.first + i) + 0.5) * scale;
    int64_t begin = std::clamp(int64_t(std::floor(center - reach + 0.5)), low, high - 1);
    int64_t end = std::clamp(int64_t(std::floor(center + reach + 0.5)), begin + 1, high);
    const auto weight_of = [&](int64_t input) {
      return kernel((double(input) + 0.5 - center) * inverse);
    };
    while (end - begin > 1 && std::abs(weight_of(begin)) < kNothing) ++begin;
    while (end - begin > 1 && std::abs(weight_of(end - 1)) < kNothing) --end;
    float* weights = &taps.weights[size_t(at * taps.stride)];
    double total = 0;
    for (int64_t t = begin; t < end; ++t) {
      const double weight = weight_of(t);
      weights[t - begin] = float(weight);
      total += weight;
    }
    // A lone input that the filter just misses counts in full.
    if (total == 0) total = double(weights[0] = 1.0F);
    const auto factor = float(1.0 / total);
    for (int64_t t = 0; t < end - begin; ++t) weights[t] *= factor;
    taps.first[size_t(at)] = int32_t(begin);
    taps.counts[size_t(at)] = int32_t(end - begin);
    taps.count_max = std::max(taps.count_max, int32_t(end - begin));
    taps.begin = std::min(taps.begin, begin);
    taps.end = std::max(taps.end, end);
  }
}

}  // namespace

Axis mirrored(Axis axis, double length) {
  axis.begin = length - axis.begin - axis.size;
  axis.first = axis.scaled - axis.first - axis.count;
  axis.reversed = !axis.reversed;
  return axis;
}

void make_taps(const Axis& axis, int64_t length, Filter filter, Taps& taps) {
  taps.first.resize(size_t(axis.count));
  taps.counts.resize(size_t(axis.count));
  taps.count_max = 0;
  taps.begin = length;
  taps.end = 0;
  // Inputs that the part covers by less than a rounding error are not of it.
  constexpr double kSliver = 1e-6;
  const int64_t low = std::clamp<int64_t>(int64_t(std::floor(axis.begin + kSliver)), 0, length - 1);
  const int64_t high =
      std::clamp<int64_t>(int64_t(std::ceil(axis.begin + axis.size - kSliver)), low + 1, length);
  if (filter == Filter::kBilinear)
    fill(axis, low, high, 1.0, triangle, taps);
  else
    fill(axis, low, high, 2.0, cubic, taps);
}

}  // namespace yard::images
