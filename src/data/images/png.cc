// The only file that knows libpng. Its errors arrive by longjmp: run_guarded() is the one place
// that sets the target, and what runs under it owns nothing that needs a destructor.
#include <png.h>

#include <csetjmp>
#include <cstring>

#include <fmt/format.h>

#include "images/codec_internal.h"

namespace yard::images {
namespace {

struct ErrorTrap {
  char message[256] = {};
};

[[noreturn]] void trap_error(png_structp png, png_const_charp message) {
  auto* trap = static_cast<ErrorTrap*>(png_get_error_ptr(png));
  std::snprintf(trap->message, sizeof(trap->message), "%s", message);
  png_longjmp(png, 1);
}

// What is only warned about leaves the pixels right: odd colour profiles, unknown chunks.
void ignore_warning(png_structp, png_const_charp) {}

template <typename Body>
bool run_guarded(png_structp png, Body body) {
  if (setjmp(png_jmpbuf(png)) != 0) return false;
  body();
  return true;
}

void compose_over(const uint8_t* rgba, uint8_t* rgb, size_t pixel_count,
                  const std::array<uint8_t, 3>& background) {
  for (size_t i = 0; i < pixel_count; ++i, rgba += 4, rgb += 3) {
    const int alpha = rgba[3];
    for (size_t c = 0; c < 3; ++c)
      rgb[c] = uint8_t((rgba[c] * alpha + background[c] * (255 - alpha) + 127) / 255);
  }
}

class Decoder {
 public:
  explicit Decoder(std::span<const std::byte> encoded) : unread_(encoded) {
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, &trap_, trap_error, ignore_warning);
    if (png_ != nullptr) info_ = png_create_info_struct(png_);
  }
  ~Decoder() { png_destroy_read_struct(&png_, &info_, nullptr); }
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  // Width and height are then known.
  Status read_header() {
    if (info_ == nullptr) return Error{Code::kExhausted, "PNG: out of memory"};
    const bool done = run_guarded(png_, [this] {
      png_set_read_fn(png_, this, read_bytes);
      // An ancillary chunk may be tRNS, whose loss changes the pixels: no damage passes.
      png_set_crc_action(png_, PNG_CRC_ERROR_QUIT, PNG_CRC_ERROR_QUIT);
      png_read_info(png_, info_);
    });
    if (!done) return error();
    return Ok{};
  }

  uint32_t width() const { return png_get_image_width(png_, info_); }
  uint32_t height() const { return png_get_image_height(png_, info_); }

  Result<Picture> read_pixels(const std::array<uint8_t, 3>& background) {
    if (!run_guarded(png_, [this] { ask_for_8_bit_rgb(); })) return error();
    const bool alpha = png_get_channels(png_, info_) == 4;
    Picture picture;
    picture.width = int(width());
    picture.height = int(height());
    const size_t pixel_count = size_t(width()) * height();
    picture.pixels.resize(pixel_count * 3);
    std::vector<uint8_t> rgba(alpha ? pixel_count * 4 : 0);
    uint8_t* target = alpha ? rgba.data() : picture.pixels.data();
    if (!run_guarded(png_, [&] { read_rows(target); })) return error();
    if (alpha) compose_over(rgba.data(), picture.pixels.data(), pixel_count, background);
    return picture;
  }

  // Chunks after the pixels count too, so call it last.
  int orientation() {
    png_uint_32 size = 0;
    png_bytep block = nullptr;
    if (png_get_eXIf_1(png_, info_, &size, &block) == 0) return 1;
    return exif_orientation(std::as_bytes(std::span(block, size)));
  }

 private:
  static void read_bytes(png_structp png, png_bytep out, size_t size) {
    auto* self = static_cast<Decoder*>(png_get_io_ptr(png));
    if (size > self->unread_.size()) png_error(png, "truncated");
    std::memcpy(out, self->unread_.data(), size);
    self->unread_ = self->unread_.subspan(size);
  }

  void ask_for_8_bit_rgb() {
    png_set_expand(png_);    // palette, low bit depths and tRNS
    png_set_scale_16(png_);  // rounds, where strip_16 would cut
    png_set_gray_to_rgb(png_);
    pass_count_ = png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
  }

  void read_rows(uint8_t* out) {
    const size_t row_bytes = png_get_rowbytes(png_, info_);
    for (int pass = 0; pass < pass_count_; ++pass) {
      for (uint32_t y = 0; y < height(); ++y) png_read_row(png_, out + row_bytes * y, nullptr);
    }
    png_read_end(png_, info_);
  }

  Error error() const { return Error{Code::kCorrupt, fmt::format("PNG: {}", trap_.message)}; }

  ErrorTrap trap_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  std::span<const std::byte> unread_;
  int pass_count_ = 1;
};

class Encoder {
 public:
  Encoder() {
    png_ = png_create_write_struct(PNG_LIBPNG_VER_STRING, &trap_, trap_error, ignore_warning);
    if (png_ != nullptr) info_ = png_create_info_struct(png_);
  }
  ~Encoder() { png_destroy_write_struct(&png_, &info_); }
  Encoder(const Encoder&) = delete;
  Encoder& operator=(const Encoder&) = delete;

  Result<std::vector<std::byte>> encode(const Picture& picture) {
    if (info_ == nullptr) return Error{Code::kExhausted, "PNG: out of memory"};
    if (!run_guarded(png_, [&] { write_rows(picture); }))
      return Error{Code::kInvalidArgument, fmt::format("PNG: {}", trap_.message)};
    return std::move(encoded_);
  }

 private:
  static void append(png_structp png, png_bytep bytes, size_t size) {
    auto& encoded = static_cast<Encoder*>(png_get_io_ptr(png))->encoded_;
    const auto* begin = reinterpret_cast<const std::byte*>(bytes);
    encoded.insert(encoded.end(), begin, begin + size);
  }

  void write_rows(const Picture& picture) {
    png_set_write_fn(png_, this, append, nullptr);
    png_set_IHDR(png_, info_, uint32_t(picture.width), uint32_t(picture.height), 8,
                 PNG_COLOR_TYPE_RGB, PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT,
                 PNG_FILTER_TYPE_DEFAULT);
    png_write_info(png_, info_);
    const size_t row_bytes = size_t(picture.width) * 3;
    for (int y = 0; y < picture.height; ++y)
      png_write_row(png_, picture.pixels.data() + row_bytes * size_t(y));
    png_write_end(png_, info_);
  }

  ErrorTrap trap_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  std::vector<std::byte> encoded_;
};

}  // namespace

bool is_png(std::span<const std::byte> encoded) {
  static constexpr uint8_t kSignature[8] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
  return encoded.size() >= sizeof(kSignature) &&
         std::memcmp(encoded.data(), kSignature, sizeof(kSignature)) == 0;
}

Result<Decoded> decode_png(std::span<const std::byte> encoded, const DecodeOptions& options) {
  Decoder decoder(encoded);
  YARD_TRY(decoder.read_header());
  YARD_TRY(check_pixel_count(decoder.width(), decoder.height(), options));
  YARD_ASSIGN(Picture picture, decoder.read_pixels(options.background));
  return Decoded{std::move(picture), decoder.orientation()};
}

Result<std::vector<std::byte>> encode_png(const Picture& picture) {
  YARD_CHECK(picture.width > 0 && picture.height > 0);
  YARD_CHECK(picture.pixels.size() == size_t(picture.width) * size_t(picture.height) * 3);
  Encoder encoder;
  return encoder.encode(picture);
}

}  // namespace yard::images
