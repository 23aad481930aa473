// Writing PNG; for the errors see png_source.cc.
#include <png.h>

#include <csetjmp>

#include <fmt/format.h>

#include "images/picture.h"

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

void ignore_warning(png_structp, png_const_charp) {}

template <typename Body>
bool run_guarded(png_structp png, Body body) {
  if (setjmp(png_jmpbuf(png)) != 0) return false;
  body();
  return true;
}

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

Result<std::vector<std::byte>> encode_png(const Picture& picture) {
  YARD_CHECK(picture.width > 0 && picture.height > 0);
  YARD_CHECK(picture.pixels.size() == size_t(picture.width) * size_t(picture.height) * 3);
  Encoder encoder;
  return encoder.encode(picture);
}

}  // namespace yard::images
