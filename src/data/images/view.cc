#include "images/view.h"

#include <algorithm>
#include <cmath>

#include "base/random.h"
#include "base/result.h"

namespace yard::images {
namespace {

// Streams of random_uniform(): one per thing drawn.
enum Stream : uint64_t { kX, kY, kFlip, kArea, kAspect };

constexpr int kTryCount = 10;

void check_sizes(Size picture, Size output) {
  YARD_CHECK(picture.width >= 1 && picture.height >= 1);
  YARD_CHECK(output.width >= 1 && output.width <= 65535);
  YARD_CHECK(output.height >= 1 && output.height <= 65535);
}

// Where a window of `size` lies along a side of `length`: half to even, as Python rounds.
int64_t window_begin(int64_t length, int64_t size, double position) {
  return int64_t(std::nearbyint(position * double(length - size)));
}

View part_view(int64_t x, int64_t y, int64_t width, int64_t height, Size output, bool flip) {
  return {x, y, width,        height,        output.width, output.height,
          0, 0, output.width, output.height, flip};
}

bool draw_flip(double probability, uint64_t seed) {
  return random_uniform(seed, kFlip, 0) < probability;
}

}  // namespace

std::array<int64_t, 2> size_with_shorter_side(int width, int height, int size) {
  YARD_CHECK(width >= 1 && height >= 1 && size >= 1);
  if (width <= height) return {size, int64_t{size} * height / width};
  return {int64_t{size} * width / height, size};
}

View stretched_view(Size picture, Size output) {
  check_sizes(picture, output);
  return part_view(0, 0, picture.width, picture.height, output, false);
}

View covering_view(Size picture, Size output, double x, double y, bool flip) {
  check_sizes(picture, output);
  YARD_CHECK(x >= 0 && x <= 1 && y >= 0 && y <= 1);
  View view = part_view(0, 0, picture.width, picture.height, output, flip);
  // The side that decides the scale is the one that is shorter beside the output's.
  if (int64_t{picture.width} * output.height <= int64_t{picture.height} * output.width)
    view.scaled_height = int64_t{output.width} * picture.height / picture.width;
  else
    view.scaled_width = int64_t{output.height} * picture.width / picture.height;
  view.left = window_begin(view.scaled_width, output.width, x);
  view.top = window_begin(view.scaled_height, output.height, y);
  return view;
}

View random_view(Size picture, Size output, double flip_probability, uint64_t seed) {
  return covering_view(picture, output, random_uniform(seed, kX, 0), random_uniform(seed, kY, 0),
                       draw_flip(flip_probability, seed));
}

View random_resized_view(Size picture, Size output, const RandomRule& rule, uint64_t seed) {
  check_sizes(picture, output);
  YARD_CHECK(rule.area_min > 0 && rule.area_min <= rule.area_max && rule.area_max <= 1);
  YARD_CHECK(rule.aspect_min > 0 && rule.aspect_min <= rule.aspect_max);
  const bool flip = draw_flip(rule.flip_probability, seed);
  const auto draw = [&](Stream stream, int index, double from, double to) {
    return from + (to - from) * random_uniform(seed, stream, uint64_t(index));
  };
  const auto place = [&](Stream stream, int index, int64_t free) {
    return int64_t(random_below(uint64_t(free) + 1, seed, stream, uint64_t(index)));
  };
  for (int i = 0; i < kTryCount; ++i) {
    const double area = draw(kArea, i, rule.area_min, rule.area_max) * double(picture.width) *
                        double(picture.height);
    const double aspect =
        std::exp(draw(kAspect, i, std::log(rule.aspect_min), std::log(rule.aspect_max)));
    const auto width = int64_t(std::nearbyint(std::sqrt(area * aspect)));
    const auto height = int64_t(std::nearbyint(std::sqrt(area / aspect)));
    if (width < 1 || width > picture.width || height < 1 || height > picture.height) continue;
    const int64_t x = place(kX, i, picture.width - width);
    const int64_t y = place(kY, i, picture.height - height);
    return part_view(x, y, width, height, output, flip);
  }
  const double aspect =
      std::clamp(double(picture.width) / picture.height, rule.aspect_min, rule.aspect_max);
  const auto width =
      std::clamp<int64_t>(int64_t(std::nearbyint(picture.height * aspect)), 1, picture.width);
  const auto height =
      std::clamp<int64_t>(int64_t(std::nearbyint(picture.width / aspect)), 1, picture.height);
  return part_view((picture.width - width) / 2, (picture.height - height) / 2, width, height,
                   output, flip);
}

}  // namespace yard::images
