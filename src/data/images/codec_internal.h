// What decode() is made of: one decoder per format, each the only place that knows its library.
#pragma once

#include <span>
#include <string>

#include "images/picture.h"

namespace yard::images {

// A decoded picture as the file stores it, and how it is to be turned: EXIF orientation 1..8.
struct Decoded {
  Picture picture;
  int orientation = 1;
};

bool is_jpeg(std::span<const std::byte> encoded);
bool is_png(std::span<const std::byte> encoded);
Result<Decoded> decode_jpeg(std::span<const std::byte> encoded, const DecodeOptions& options);
Result<Decoded> decode_png(std::span<const std::byte> encoded, const DecodeOptions& options);

// kExhausted when the header promises more pixels than allowed, so that nothing is allocated.
Status check_pixel_count(uint64_t width, uint64_t height, const DecodeOptions& options);

// The orientation tag (0x0112) of a TIFF block: what follows "Exif\0\0" in a JPEG, or a PNG's eXIf
// chunk. 1, upright, when there is none or the block is malformed.
int exif_orientation(std::span<const std::byte> tiff);
// `picture` as it is to be seen, by EXIF 2.32, table 7 (orientation).
Picture turn_upright(const Picture& picture, int orientation);

}  // namespace yard::images
