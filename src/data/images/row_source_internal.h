// RowSource: a picture as rows from the top, so that it need never be in memory as a whole.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "images/picture.h"

namespace yard::images {

// Rows are pixels of four bytes: R, G, B and one without meaning.
constexpr int64_t kPixelBytes = 4;
// What a row's buffer must have beyond its pixels; vector code reads and writes there.
constexpr int64_t kRowPadding = 256;
// Where a row's buffer should begin, past a multiple of 64: libjpeg-turbo writes to aligned rows
// around the cache (movntdq), so that reading them at once waits for memory. Measured on decoding
// and resizing together: 5 %.
constexpr int64_t kRowMisalignment = 4;

// In pixels of the picture as stored, at the scale asked for.
struct Region {
  int64_t x = 0;
  int64_t y = 0;
  int64_t width = 0;
  int64_t height = 0;
};

// One per format, each the only place that knows its library; reused from picture to picture, in
// the order open(), start(), read_rows() until the region is through, finish(), close(). After an
// error only close() and open() may follow.
class RowSource {
 public:
  virtual ~RowSource() = default;

  // The header. `encoded` must stay until finish(). Checks the number of pixels.
  virtual Status open(std::span<const std::byte> encoded) = 0;
  // Known after open(): the size as stored, and the EXIF orientation, 1..8.
  virtual int width() const = 0;
  virtual int height() const = 0;
  virtual int orientation() const = 0;
  // Whether start() may be given this denominator: 1, for JPEG also 2, 4 and 8.
  virtual bool can_scale_by(int denominator) const { return denominator == 1; }

  // Rows [region.y, region.y + region.height) will be read, of at least the region's columns.
  // Returns the columns that they will have; y and height are not used.
  virtual Result<Region> start(int denominator, const Region& region) = 0;
  // The next rows.size() rows.
  virtual Status read_rows(std::span<uint8_t* const> rows) = 0;
  // Says whether the file ends as it should.
  virtual Status finish() = 0;
  // Gives back what a large picture took; a small one's memory is kept for the next.
  virtual void close() {}
};

bool is_jpeg(std::span<const std::byte> encoded);
bool is_png(std::span<const std::byte> encoded);
bool is_webp(std::span<const std::byte> encoded);
std::unique_ptr<RowSource> make_jpeg_source(const DecodeOptions& options);
std::unique_ptr<RowSource> make_png_source(const DecodeOptions& options);
std::unique_ptr<RowSource> make_webp_source(const DecodeOptions& options);

// kExhausted when the header promises more pixels than allowed, so that nothing is allocated.
Status check_pixel_count(uint64_t width, uint64_t height, const DecodeOptions& options);

// A row of RGBA laid over a colour, in place.
void lay_over(uint8_t* rgba, int64_t pixel_count, const std::array<uint8_t, 3>& background);

// The orientation tag (0x0112) of a TIFF block: what follows "Exif\0\0" in a JPEG, or a PNG's eXIf
// chunk. 1, upright, when there is none or the block is malformed.
int exif_orientation(std::span<const std::byte> tiff);
// By EXIF 2.32, table 7: how the picture that is seen comes from the one that is stored. Rows and
// columns change places if transposed; the mirrors apply to the axes of what is seen.
struct Turn {
  bool transposed = false;
  bool mirror_x = false;
  bool mirror_y = false;
};
Turn turn_of(int orientation);
Picture turn_upright(const Picture& picture, int orientation);

}  // namespace yard::images
