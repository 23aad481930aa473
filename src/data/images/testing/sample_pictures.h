// Pictures for tests, and encoders of kinds that training never writes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "images/picture.h"

namespace yard::images::testing {

// Ramps, edges and noise, the same at every call, so that no filter tap goes unnoticed.
Picture sample_picture(int width, int height);
Picture solid(int width, int height, uint8_t r, uint8_t g, uint8_t b);
int largest_difference(const Picture& a, const Picture& b);

struct JpegKind {
  int horizontal_sampling = 2;  // of luma beside chroma
  int vertical_sampling = 2;
  bool progressive = false;
  int channel_count = 3;  // 1: grey; 4: the picture's channels and black, as CMYK
  bool scan_per_channel = false;
  bool arithmetic = false;  // not Huffman coded
};
std::vector<std::byte> encode_jpeg_kind(const Picture& picture, const JpegKind& kind);

std::vector<std::byte> encode_webp_lossless(const Picture& picture);
std::vector<std::byte> encode_webp_lossy(const Picture& picture);
// RGBA, with alpha as the row number times `alpha_step`.
std::vector<std::byte> encode_webp_alpha(const Picture& picture, int alpha_step);
// A chunk put at the end of a WebP file, which must be of the extended kind or is made one.
std::vector<std::byte> webp_with_exif(const std::vector<std::byte>& webp, const Picture& picture,
                                      std::string_view exif);
// An animation of one frame that does not cover its canvas.
std::vector<std::byte> webp_animation(const std::vector<std::byte>& frame, int x, int y,
                                      Size frame_size, Size canvas);

// Of PNG: ISO 3309.
uint32_t crc32(std::string_view bytes);
// A PNG with a chunk put before its end.
std::vector<std::byte> png_with_chunk(const std::vector<std::byte>& png, std::string_view type,
                                      std::string_view body);
// A TIFF block that holds an orientation and no more.
std::string tiff_orientation(int orientation, bool big_endian);
// A JPEG with the orientation in an EXIF block right after its start.
std::vector<std::byte> jpeg_with_orientation(std::vector<std::byte> jpeg, int orientation,
                                             bool big_endian);

}  // namespace yard::images::testing
