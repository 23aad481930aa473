#include <algorithm>
#include <cmath>

#include "images/resample_internal.h"

namespace yard::images {
namespace {

// Where a window of `size` lies along a side of `length`: half to even, as Python rounds.
int64_t window_begin(int64_t length, int64_t size, double position) {
  return int64_t(std::nearbyint(position * double(length - size)));
}

}  // namespace

std::array<int64_t, 2> size_with_shorter_side(int width, int height, int size) {
  YARD_CHECK(width >= 1 && height >= 1 && size >= 1);
  if (width <= height) return {size, int64_t{size} * height / width};
  return {int64_t{size} * width / height, size};
}

void crop_into(const Picture& picture, const Crop& crop, std::span<float> out) {
  YARD_CHECK(crop.size >= 1 && crop.size <= 65535);
  const size_t size = size_t(crop.size);
  YARD_CHECK(out.size() == size * size * 3);
  YARD_CHECK(crop.x >= 0 && crop.x <= 1 && crop.y >= 0 && crop.y <= 1);
  const auto [width, height] = size_with_shorter_side(picture.width, picture.height, crop.size);
  const std::vector<float> levels =
      resample(picture, {width, window_begin(width, crop.size, crop.x), crop.size},
               {height, window_begin(height, crop.size, crop.y), crop.size});
  for (size_t y = 0; y < size; ++y) {
    const float* row = levels.data() + y * size * 3;
    for (size_t c = 0; c < 3; ++c) {
      float* target = out.data() + (c * size + y) * size;
      for (size_t x = 0; x < size; ++x) target[x] = row[x * 3 + c] / 127.5F - 1.0F;
      if (crop.flip) std::reverse(target, target + size);
    }
  }
}

}  // namespace yard::images
