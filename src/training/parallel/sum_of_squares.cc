#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "parallel/sum_of_squares_internal.h"

namespace yard::parallel {
namespace {

constexpr size_t kBlockSize = size_t{1} << 14;
// Sums side by side, so that the compiler can use vectors.
constexpr size_t kLanes = 8;

double block_sum(std::span<const float> values) {
  std::array<double, kLanes> lanes = {};
  size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes)
    for (size_t lane = 0; lane < kLanes; ++lane)
      lanes[lane] += static_cast<double>(values[i + lane]) * static_cast<double>(values[i + lane]);
  for (; i < values.size(); ++i)
    lanes[i % kLanes] += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

}  // namespace

double sum_of_squares(std::span<const float> values) {
  std::vector<double> sums((values.size() + kBlockSize - 1) / kBlockSize);
  at::parallel_for(0, static_cast<int64_t>(sums.size()), 4, [&](int64_t begin, int64_t end) {
    for (auto b = static_cast<size_t>(begin); b < static_cast<size_t>(end); ++b) {
      const size_t at = b * kBlockSize;
      sums[b] = block_sum(values.subspan(at, std::min(kBlockSize, values.size() - at)));
    }
  });
  double sum = 0;
  for (const double part : sums) sum += part;
  return sum;
}

}  // namespace yard::parallel
