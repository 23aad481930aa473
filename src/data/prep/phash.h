// The 64-bit perceptual hash "pHash" as Python's imagehash.phash computes it, and the grey pictures
// that it and other measures are taken from.
//
// Pure functions; any thread. docs/prep.md has the definition.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "images/picture.h"

namespace yard::prep {

struct GreyPicture {
  int width = 0;
  int height = 0;
  std::vector<uint8_t> levels;  // height x width, rows from the top
};

// ITU-R BT.601 luma with the rounding of Pillow's convert("L").
GreyPicture to_grey(const images::Picture& picture);
// Pillow's LANCZOS, bit for bit. Sides >= 1.
GreyPicture resize_lanczos(const GreyPicture& picture, int width, int height);
// The mean of each factor x factor square; rows and columns that are left over are dropped.
// factor >= 1, no larger than a side.
GreyPicture reduce(const GreyPicture& picture, int factor);

// Lanczos to 32 x 32, two-dimensional DCT-II, the 8 x 8 lowest frequencies; a bit says whether one
// is above their median. Row by row, the first is the most significant.
uint64_t phash(const GreyPicture& picture);
inline int phash_distance(uint64_t a, uint64_t b) {
  return std::popcount(a ^ b);
}

// 16 hexadecimal digits, as str() of imagehash's hash.
std::string phash_text(uint64_t hash);
// kInvalidArgument: not 16 hexadecimal digits.
Result<uint64_t> parse_phash(std::string_view text);

}  // namespace yard::prep
