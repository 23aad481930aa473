#include <fmt/format.h>

#include "images/codec_internal.h"

namespace yard::images {

Status check_pixel_count(uint64_t width, uint64_t height, const DecodeOptions& options) {
  // Both formats keep a side below 2^31, so the product fits.
  const uint64_t pixel_count = width * height;
  if (options.pixel_count_max >= 0 && pixel_count <= uint64_t(options.pixel_count_max)) return Ok{};
  return Error{Code::kExhausted, fmt::format("picture of {} x {} pixels: more than {} pixels",
                                             width, height, options.pixel_count_max)};
}

Result<Picture> decode(std::span<const std::byte> encoded, const DecodeOptions& options) {
  const bool jpeg = is_jpeg(encoded);
  if (!jpeg && !is_png(encoded)) {
    return Error{Code::kInvalidArgument,
                 encoded.empty() ? "empty picture" : "neither a JPEG nor a PNG picture"};
  }
  YARD_ASSIGN(Decoded decoded, jpeg ? decode_jpeg(encoded, options) : decode_png(encoded, options));
  if (!options.apply_orientation || decoded.orientation == 1) return std::move(decoded.picture);
  return turn_upright(decoded.picture, decoded.orientation);
}

}  // namespace yard::images
