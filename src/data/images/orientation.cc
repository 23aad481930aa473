#include "images/row_source_internal.h"

namespace yard::images {
namespace {

// Bounds-checked numbers of a TIFF block in its own byte order; 0 past the end.
class TiffBytes {
 public:
  explicit TiffBytes(std::span<const std::byte> bytes)
      : bytes_(bytes), big_endian_(byte(0) == 'M' && byte(1) == 'M') {}

  bool valid() const {
    const bool order = big_endian_ || (byte(0) == 'I' && byte(1) == 'I');
    return bytes_.size() >= 8 && order && u16(2) == 42;
  }
  uint32_t u16(uint64_t at) const {
    return big_endian_ ? byte(at) << 8 | byte(at + 1) : byte(at + 1) << 8 | byte(at);
  }
  uint32_t u32(uint64_t at) const {
    return big_endian_ ? u16(at) << 16 | u16(at + 2) : u16(at + 2) << 16 | u16(at);
  }

 private:
  uint32_t byte(uint64_t at) const { return at < bytes_.size() ? uint32_t(bytes_[at]) : 0; }

  std::span<const std::byte> bytes_;
  bool big_endian_;
};

}  // namespace

int exif_orientation(std::span<const std::byte> tiff) {
  constexpr uint32_t kOrientationTag = 0x0112;
  constexpr uint32_t kShort = 3;
  const TiffBytes bytes(tiff);
  if (!bytes.valid()) return 1;
  const uint64_t directory = bytes.u32(4);
  const uint32_t entry_count = bytes.u16(directory);
  for (uint32_t i = 0; i < entry_count; ++i) {
    const uint64_t entry = directory + 2 + uint64_t{12} * i;
    if (bytes.u16(entry) != kOrientationTag) continue;
    const uint32_t value = bytes.u16(entry + 8);
    return bytes.u16(entry + 2) == kShort && value >= 1 && value <= 8 ? int(value) : 1;
  }
  return 1;
}

Turn turn_of(int orientation) {
  YARD_CHECK(orientation >= 1 && orientation <= 8);
  const auto one_of = [&](int a, int b, int c, int d) {
    return orientation == a || orientation == b || orientation == c || orientation == d;
  };
  return {orientation >= 5, one_of(2, 3, 6, 7), one_of(3, 4, 7, 8)};
}

Picture turn_upright(const Picture& picture, int orientation) {
  const auto [transposed, mirror_x, mirror_y] = turn_of(orientation);
  Picture upright;
  upright.width = transposed ? picture.height : picture.width;
  upright.height = transposed ? picture.width : picture.height;
  upright.pixels.resize(picture.pixels.size());
  uint8_t* out = upright.pixels.data();
  for (int y = 0; y < upright.height; ++y) {
    const int from_y = mirror_y ? upright.height - 1 - y : y;
    for (int x = 0; x < upright.width; ++x, out += 3) {
      const int from_x = mirror_x ? upright.width - 1 - x : x;
      const size_t row = size_t(transposed ? from_x : from_y);
      const size_t column = size_t(transposed ? from_y : from_x);
      const uint8_t* in = &picture.pixels[(row * size_t(picture.width) + column) * 3];
      out[0] = in[0];
      out[1] = in[1];
      out[2] = in[2];
    }
  }
  return upright;
}

}  // namespace yard::images
