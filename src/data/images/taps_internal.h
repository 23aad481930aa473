// Taps: which inputs, times which weights, make each output along one axis.
#pragma once

#include <cstdint>
#include <vector>

#include "images/picture_reader.h"

namespace yard::images {

// Inputs [begin, begin + size) become `scaled` outputs, of which [first, first + count) are made.
struct Axis {
  double begin = 0;  // fractions come from decoding at a smaller scale
  double size = 0;
  int64_t scaled = 0;
  int64_t first = 0;
  int64_t count = 0;
  bool reversed = false;  // the outputs in reverse order
};

// The axis as it lies in a picture that is mirrored along it, `length` inputs long.
Axis mirrored(Axis axis, double length);

// Output i is the sum over t < counts[i] of weights[i * stride + t] * input[first[i] + t]; the
// weights after that are zero.
struct Taps {
  std::vector<int32_t> first;
  std::vector<int32_t> counts;
  std::vector<float> weights;
  int64_t stride = 0;
  int32_t count_max = 0;
  // Inputs [begin, end) are all that is looked at.
  int64_t begin = 0;
  int64_t end = 0;
};

// `length` is how many inputs there are: rounding must not look past them. Reuses `taps`.
void make_taps(const Axis& axis, int64_t length, Filter filter, Taps& taps);

}  // namespace yard::images
