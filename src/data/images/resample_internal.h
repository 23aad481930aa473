// The resampling shared by resize() and crop_into(): a window of a resized picture, as floats.
#pragma once

#include <vector>

#include "images/picture.h"

namespace yard::images {

// Columns [begin, begin + count) of a picture resized to `size` columns; or rows.
struct Span1d {
  int64_t size = 0;
  int64_t begin = 0;
  int64_t count = 0;
};

// y.count x x.count x 3 floats in 0..255, unrounded.
std::vector<float> resample(const Picture& picture, const Span1d& x, const Span1d& y);

}  // namespace yard::images
