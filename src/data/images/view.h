// View: which part of a picture becomes the output, at what size, from where, mirrored or not.
//
// Pure functions of their arguments, on every machine the same; from any thread.
#pragma once

#include <array>
#include <cstdint>

namespace yard::images {

// The part is scaled to scaled_width x scaled_height, the window is cut from that. Nothing outside
// the part is looked at, as if it had been cut out first. All in pixels of the upright picture.
struct View {
  int64_t part_x = 0;
  int64_t part_y = 0;
  int64_t part_width = 0;
  int64_t part_height = 0;
  int64_t scaled_width = 0;
  int64_t scaled_height = 0;
  int64_t left = 0;  // of the window, in the scaled part
  int64_t top = 0;
  int width = 0;  // of the window: the output's size, 1..65535
  int height = 0;
  bool flip = false;  // the output is mirrored left to right

  bool operator==(const View&) const = default;
};

struct Size {
  int width = 0;
  int height = 0;

  bool operator==(const Size&) const = default;
};

// The size that a picture has once its shorter side is `size`; the longer is rounded down, as
// torchvision's Resize does.
std::array<int64_t, 2> size_with_shorter_side(int width, int height, int size);

// The whole picture, stretched.
View stretched_view(Size picture, Size output);

// The picture scaled to cover the output, its sides in proportion, and a window of it: x and y, in
// 0..1, say where the window lies (0.5: the middle). For a square output this is torchvision's
// Resize and CenterCrop; for another shape the side that is longer than needed is rounded down.
View covering_view(Size picture, Size output, double x = 0.5, double y = 0.5, bool flip = false);

// What random_view() and random_resized_view() may choose; the defaults are torchvision's.
struct RandomRule {
  double area_min = 0.08;  // of the part, as a share of the picture's, in (0, 1]
  double area_max = 1.0;
  double aspect_min = 3.0 / 4;  // of the part's width to its height
  double aspect_max = 4.0 / 3;
  double flip_probability = 0.5;
};

// covering_view() with the window's place and the flip drawn from `seed`.
View random_view(Size picture, Size output, double flip_probability, uint64_t seed);
// A part of random area and aspect, stretched over the output (torchvision's RandomResizedCrop:
// ten tries, then the middle as wide or as high as the aspects allow). Drawn from `seed` alone.
View random_resized_view(Size picture, Size output, const RandomRule& rule, uint64_t seed);

}  // namespace yard::images
