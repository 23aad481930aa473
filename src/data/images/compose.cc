#include <algorithm>

#include "images/picture.h"

namespace yard::images {
namespace {

uint8_t level_of(float value) {
  const float level = (value + 1.0F) * 127.5F;
  // Written so that not-a-number takes the first branch.
  if (!(level > 0.0F)) return 0;
  return level >= 255.0F ? 255 : uint8_t(level + 0.5F);
}

void paste(const Picture& picture, int left, int top, Picture& canvas) {
  const size_t row_bytes = size_t(picture.width) * 3;
  for (int y = 0; y < picture.height; ++y) {
    const size_t to = (size_t(top + y) * size_t(canvas.width) + size_t(left)) * 3;
    std::copy_n(picture.pixels.begin() + ptrdiff_t(row_bytes * size_t(y)), row_bytes,
                canvas.pixels.begin() + ptrdiff_t(to));
  }
}

}  // namespace

Picture from_floats(std::span<const float> chw, int width, int height) {
  YARD_CHECK(width >= 1 && height >= 1);
  const size_t pixel_count = size_t(width) * size_t(height);
  YARD_CHECK(chw.size() == pixel_count * 3);
  Picture picture{width, height, std::vector<uint8_t>(pixel_count * 3)};
  for (size_t c = 0; c < 3; ++c) {
    for (size_t i = 0; i < pixel_count; ++i)
      picture.pixels[i * 3 + c] = level_of(chw[c * pixel_count + i]);
  }
  return picture;
}

Picture grid(std::span<const Picture> pictures, int column_count, int gap) {
  YARD_CHECK(!pictures.empty() && column_count >= 1 && gap >= 0);
  const int width = pictures[0].width;
  const int height = pictures[0].height;
  const int count = int(pictures.size());
  const int columns = std::min(column_count, count);
  const int rows = (count + columns - 1) / columns;
  Picture canvas{columns * (width + gap) - gap, rows * (height + gap) - gap, {}};
  canvas.pixels.assign(size_t(canvas.width) * size_t(canvas.height) * 3, 255);
  for (int i = 0; i < count; ++i) {
    const Picture& picture = pictures[size_t(i)];
    YARD_CHECK(picture.width == width && picture.height == height);
    paste(picture, i % columns * (width + gap), i / columns * (height + gap), canvas);
  }
  return canvas;
}

}  // namespace yard::images
