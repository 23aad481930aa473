#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "images/formats_internal.h"
#include "images/mix_internal.h"

namespace yard::images {
namespace {

struct Signature {
  const char* name;
  size_t offset;
  std::string_view bytes;
};

// Not read here; named so that nobody has to guess.
constexpr Signature kOthers[] = {
    {"a GIF picture", 0, "GIF8"},         {"a BMP picture", 0, "BM"},
    {"a TIFF picture", 0, {"II*\0", 4}},  {"a TIFF picture", 0, {"MM\0*", 4}},
    {"an AVIF picture", 4, "ftypavif"},   {"an AVIF picture", 4, "ftypavis"},
    {"a HEIF picture", 4, "ftyphei"},     {"a HEIF picture", 4, "ftypmif1"},
    {"a JPEG XL picture", 0, "\xff\x0a"}, {"a JPEG XL picture", 4, "JXL "},
    {"a JPEG 2000 picture", 4, "jP  "},   {"a web page", 0, "<!"},
    {"a web page", 0, "<html"},           {"an XML or SVG document", 0, "<?xml"},
    {"an SVG document", 0, "<svg"},
};

int denominator_for(const RowSource& source, int shorter_side_min) {
  if (shorter_side_min <= 0) return 1;
  const int shorter = std::min(source.width(), source.height());
  for (const int denominator : {8, 4, 2}) {
    if (source.can_scale_by(denominator) &&
        (shorter + denominator - 1) / denominator >= shorter_side_min)
      return denominator;
  }
  return 1;
}

Status read_into(RowSource& source, int denominator, Picture& picture) {
  const Region whole = {0, 0, picture.width, picture.height};
  YARD_ASSIGN(const Region given, source.start(denominator, whole));
  YARD_CHECK(given.x == 0 && given.width == whole.width);
  std::vector<uint8_t> buffer(size_t(whole.width * kPixelBytes + kRowPadding + kRowMisalignment));
  uint8_t* const row = buffer.data() + kRowMisalignment;
  picture.pixels.resize(size_t(whole.width * whole.height) * 3);
  uint8_t* out = picture.pixels.data();
  for (int64_t y = 0; y < whole.height; ++y) {
    YARD_TRY(source.read_rows(std::span(&row, 1)));
    narrow_pixels(row, size_t(whole.width), out);
    out += whole.width * 3;
  }
  return source.finish();
}

}  // namespace

Status check_pixel_count(uint64_t width, uint64_t height, const DecodeOptions& options) {
  // All formats keep a side below 2^31, so the product fits.
  const uint64_t pixel_count = width * height;
  if (options.pixel_count_max >= 0 && pixel_count <= uint64_t(options.pixel_count_max)) return Ok{};
  return Error{Code::kExhausted, fmt::format("picture of {} x {} pixels: more than {} pixels",
                                             width, height, options.pixel_count_max)};
}

void lay_over(uint8_t* rgba, int64_t pixel_count, const std::array<uint8_t, 3>& background) {
  for (int64_t i = 0; i < pixel_count; ++i, rgba += kPixelBytes) {
    const int alpha = rgba[3];
    if (alpha == 255) continue;
    for (size_t c = 0; c < 3; ++c)
      rgba[c] = uint8_t((rgba[c] * alpha + background[c] * (255 - alpha) + 127) / 255);
  }
}

Result<Format> format_of(std::span<const std::byte> encoded) {
  if (is_jpeg(encoded)) return Format::kJpeg;
  if (is_png(encoded)) return Format::kPng;
  if (is_webp(encoded)) return Format::kWebp;
  if (encoded.empty()) return Error{Code::kInvalidArgument, "empty picture"};
  for (const auto& [name, offset, bytes] : kOthers) {
    if (encoded.size() >= offset + bytes.size() &&
        std::memcmp(encoded.data() + offset, bytes.data(), bytes.size()) == 0)
      return Error{Code::kInvalidArgument,
                   fmt::format("{}, where JPEG, PNG and WebP are read", name)};
  }
  return Error{Code::kInvalidArgument, "neither a JPEG, a PNG nor a WebP picture"};
}

std::unique_ptr<RowSource> make_source(Format format, const DecodeOptions& options) {
  switch (format) {
    case Format::kJpeg:
      return make_jpeg_source(options);
    case Format::kPng:
      return make_png_source(options);
    case Format::kWebp:
      return make_webp_source(options);
  }
  YARD_UNREACHABLE();
}

Result<Picture> decode(std::span<const std::byte> encoded, const DecodeOptions& options) {
  YARD_ASSIGN(const Format format, format_of(encoded));
  const std::unique_ptr<RowSource> source = make_source(format, options);
  YARD_TRY(source->open(encoded));
  const int denominator = denominator_for(*source, options.shorter_side_min);
  Picture picture;
  picture.width = (source->width() + denominator - 1) / denominator;
  picture.height = (source->height() + denominator - 1) / denominator;
  YARD_TRY(read_into(*source, denominator, picture));
  if (!options.apply_orientation || source->orientation() == 1) return picture;
  return turn_upright(picture, source->orientation());
}

}  // namespace yard::images
