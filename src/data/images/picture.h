// Picture: 8-bit RGB pixels in memory, and what is done to them on the way to a batch.
//
// Every function here is pure and may be called from any thread at any time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "images/view.h"

namespace yard::images {

struct Picture {
  int width = 0;
  int height = 0;
  std::vector<uint8_t> pixels;  // height x width x 3, rows from the top, RGB
};

struct DecodeOptions {
  std::array<uint8_t, 3> background = {255, 255, 255};  // under transparent pixels
  int64_t pixel_count_max = int64_t{1} << 26;           // larger pictures are kExhausted, unread
  // > 0: a JPEG may be decoded at 1/2, 1/4 or 1/8 as long as its shorter side stays >= this.
  int shorter_side_min = 0;
  bool apply_orientation = true;  // turned upright as the file's EXIF orientation says
};

// JPEG, PNG or WebP, told by their first bytes; grey, palette, 16-bit, alpha and CMYK become RGB;
// of an animation the first frame. docs/pictures.md says more.
// kCorrupt: damaged or truncated; kInvalidArgument: another format; kExhausted: too large.
Result<Picture> decode(std::span<const std::byte> encoded, const DecodeOptions& options);

// Antialiased triangle filter, equal to Pillow's BILINEAR within 1/255. Sides in [1, 65535].
Picture resize(const Picture& picture, int width, int height);

// How a picture becomes a square training image. Pure: the same choice gives the same pixels.
struct Crop {
  int size = 64;   // output side, pixels
  double x = 0.5;  // where the square lies along the longer side, 0..1
  double y = 0.5;
  bool flip = false;  // mirrored left to right
};

// Scales the shorter side to crop.size, cuts the square, writes it normalised to [-1, 1] as
// 3 x size x size floats (CHW) into `out`, whose size must be exactly that. Only the pixels under
// the square are computed, without rounding to 8 bits between.
void crop_into(const Picture& picture, const Crop& crop, std::span<float> out);

// kInvalidArgument: a side too long for the format (PNG 1,000,000; JPEG 65,500). quality 1..100.
Result<std::vector<std::byte>> encode_png(const Picture& picture);
Result<std::vector<std::byte>> encode_jpeg(const Picture& picture, int quality);

// [-1, 1] CHW floats back to a Picture, clamped; not-a-number becomes 0.
Picture from_floats(std::span<const float> chw, int width, int height);
// One or more pictures of one size side by side, `column_count` a row, `gap` white pixels between.
Picture grid(std::span<const Picture> pictures, int column_count, int gap);

}  // namespace yard::images
