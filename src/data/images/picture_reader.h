// PictureReader: an encoded picture in, the pixels that training wants out, in one pass: decode,
// resize, cut, mirror, normalise and lay out, straight into the caller's memory.
//
// Not thread-safe: one per thread. It keeps its buffers from picture to picture, so that a stream
// of pictures of like sizes is read without allocating (libwebp's own work apart). Pictures of more
// than a few megapixels do not leave their buffers behind.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>

#include "base/result.h"
#include "images/picture.h"
#include "images/view.h"

namespace yard::images {

enum class Format { kJpeg, kPng, kWebp };
std::string_view to_string(Format format);

struct PictureInfo {
  Format format = Format::kJpeg;
  Size size;            // upright, unless DecodeOptions::apply_orientation is off
  int orientation = 1;  // EXIF, 1..8; 1 when the file says nothing
};

// Both antialiased as Pillow's: their support grows with the reduction.
enum class Filter { kBilinear, kBicubic };
enum class Layout { kPlanar, kInterleaved };  // 3 x H x W; or H x W x 3 (channels last)
enum class PixelType { kUint8, kFloat32, kBfloat16 };
size_t size_bytes(PixelType type);

struct RenderOptions {
  Filter filter = Filter::kBilinear;
  Layout layout = Layout::kPlanar;
  PixelType type = PixelType::kFloat32;
  // (level / 255 - mean) / std, per channel; the defaults give [-1, 1]. Not applied to kUint8,
  // which holds the levels, rounded.
  std::array<float, 3> mean = {0.5F, 0.5F, 0.5F};
  std::array<float, 3> std = {0.5F, 0.5F, 0.5F};
  // A JPEG is decoded at 1/2, 1/4 or 1/8 as long as that is no smaller than the view's scaled size:
  // faster, and other than Pillow's full decode by what docs/pictures.md states.
  bool dct_scaling = true;
};

class PictureReader {
 public:
  explicit PictureReader(const DecodeOptions& options = {});
  ~PictureReader();
  PictureReader(const PictureReader&) = delete;
  PictureReader& operator=(const PictureReader&) = delete;

  // Reads the header. `encoded` must stay until render() is through. kCorrupt: damaged;
  // kInvalidArgument: no format of ours; kExhausted: more pixels than DecodeOptions allows, nothing
  // allocated for them.
  Result<PictureInfo> open(std::span<const std::byte> encoded);

  // Once after each successful open(). `view` must lie in the picture; `out` must be aligned to its
  // type and be exactly width x height x 3 of it. kCorrupt: damaged or truncated, `out` then holds
  // anything; kExhausted: a file that wants too much memory. Damage in the part of a JPEG that lies
  // below the view is not looked for, its end is.
  Status render(const View& view, const RenderOptions& options, std::span<std::byte> out);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace yard::images
