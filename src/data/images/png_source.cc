// Reading PNG. Its errors arrive by longjmp: run_guarded() is the one place that sets the target,
// and what runs under it owns nothing that needs a destructor.
#include <png.h>

#include <csetjmp>
#include <cstring>

#include <fmt/format.h>

#include "images/arena_internal.h"
#include "images/row_source_internal.h"

namespace yard::images {
namespace {

constexpr size_t kSignatureSize = 8;

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

uint32_t big_endian_u32(std::span<const std::byte> bytes) {
  uint32_t value = 0;
  for (const std::byte byte : bytes.first(4)) value = value << 8 | uint32_t(byte);
  return value;
}

// The eXIf chunk may come after the pixels, where libpng finds it too late. libpng checks its CRC.
int find_orientation(std::span<const std::byte> encoded) {
  constexpr size_t kFrameBytes = 12;  // length, tag, CRC
  for (auto rest = encoded.subspan(kSignatureSize); rest.size() >= kFrameBytes;) {
    const size_t size_bytes = big_endian_u32(rest);
    if (size_bytes > rest.size() - kFrameBytes) break;
    if (std::memcmp(&rest[4], "eXIf", 4) == 0) return exif_orientation(rest.subspan(8, size_bytes));
    rest = rest.subspan(kFrameBytes + size_bytes);
  }
  return 1;
}

class PngSource final : public RowSource {
 public:
  explicit PngSource(const DecodeOptions& options) : options_(options) {}
  ~PngSource() override { close(); }
  PngSource(const PngSource&) = delete;
  PngSource& operator=(const PngSource&) = delete;

  Status open(std::span<const std::byte> encoded) override {
    close();
    unread_ = encoded;
    png_ = png_create_read_struct_2(PNG_LIBPNG_VER_STRING, &trap_, trap_error, ignore_warning,
                                    &arena_, allocate, release);
    if (png_ != nullptr) info_ = png_create_info_struct(png_);
    if (info_ == nullptr) return Error{Code::kExhausted, "PNG: out of memory"};
    YARD_TRY(guarded([this] { read_header(); }));
    orientation_ = find_orientation(encoded);
    return check_pixel_count(png_get_image_width(png_, info_), png_get_image_height(png_, info_),
                             options_);
  }

  int width() const override { return int(png_get_image_width(png_, info_)); }
  int height() const override { return int(png_get_image_height(png_, info_)); }
  int orientation() const override { return orientation_; }

  Result<Region> start(int, const Region& region) override {
    YARD_TRY(guarded([this] { ask_for_8_bit_rgba(); }));
    next_row_ = 0;
    if (pass_count_ > 1) {
      YARD_TRY(guarded([this] { read_all_passes(); }));
      next_row_ = region.y;
    } else {
      YARD_TRY(skip_rows(region.y));
    }
    return Region{0, region.y, width(), region.height};
  }

  Status read_rows(std::span<uint8_t* const> rows) override {
    const size_t row_bytes = png_get_rowbytes(png_, info_);
    YARD_TRY(guarded([&] {
      for (uint8_t* row : rows) {
        if (pass_count_ > 1)
          std::memcpy(row, whole_ + row_bytes * size_t(next_row_), row_bytes);
        else
          png_read_row(png_, row, nullptr);
        ++next_row_;
      }
    }));
    if (!has_alpha_) return Ok{};
    for (uint8_t* row : rows) lay_over(row, width(), options_.background);
    return Ok{};
  }

  // The checksums lie behind the rows, so all of them are read.
  Status finish() override {
    if (pass_count_ == 1) YARD_TRY(skip_rows(height() - next_row_));
    return guarded([this] { png_read_end(png_, nullptr); });
  }

  void close() override {
    if (png_ != nullptr) png_destroy_read_struct(&png_, &info_, nullptr);
    arena_.reset();
    whole_ = nullptr;
  }

 private:
  static void* allocate(png_structp png, png_alloc_size_t size_bytes) {
    return static_cast<Arena*>(png_get_mem_ptr(png))->allocate(size_bytes);
  }
  static void release(png_structp, void*) {}  // with the next picture, all at once

  static void read_bytes(png_structp png, png_bytep out, size_t size) {
    auto* self = static_cast<PngSource*>(png_get_io_ptr(png));
    if (size > self->unread_.size()) png_error(png, "truncated");
    std::memcpy(out, self->unread_.data(), size);
    self->unread_ = self->unread_.subspan(size);
  }

  template <typename Body>
  Status guarded(Body body) {
    if (run_guarded(png_, body)) return Ok{};
    // libpng says so of its own limits and of malloc() alike: the file asks for too much.
    const std::string_view message = trap_.message;
    const bool memory = message.find("emory") != std::string_view::npos;
    return Error{memory ? Code::kExhausted : Code::kCorrupt, fmt::format("PNG: {}", message)};
  }

  void read_header() {
    png_set_read_fn(png_, this, read_bytes);
    // An ancillary chunk may be tRNS, whose loss changes the pixels: no damage passes.
    png_set_crc_action(png_, PNG_CRC_ERROR_QUIT, PNG_CRC_ERROR_QUIT);
    // What we have no use for is not unpacked: texts and profiles may be bombs of their own.
    static constexpr png_byte kUnread[] = "iCCP\0iTXt\0tEXt\0zTXt\0eXIf\0sPLT";
    png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_NEVER, kUnread, 6);
    png_read_info(png_, info_);
  }

  void ask_for_8_bit_rgba() {
    has_alpha_ = (png_get_color_type(png_, info_) & PNG_COLOR_MASK_ALPHA) != 0 ||
                 png_get_valid(png_, info_, PNG_INFO_tRNS) != 0;
    png_set_expand(png_);    // palette, low bit depths and tRNS
    png_set_scale_16(png_);  // rounds, where strip_16 would cut
    png_set_gray_to_rgb(png_);
    if (!has_alpha_) png_set_filler(png_, 0xff, PNG_FILLER_AFTER);
    pass_count_ = png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
    const size_t row_bytes = png_get_rowbytes(png_, info_);
    if (row_bytes != size_t(width()) * kPixelBytes) png_error(png_, "unexpected row size");
    spare_row_ = static_cast<uint8_t*>(png_malloc(png_, row_bytes));
  }

  // An interlaced picture is whole only after its last pass.
  void read_all_passes() {
    const size_t row_bytes = png_get_rowbytes(png_, info_);
    whole_ = static_cast<uint8_t*>(png_malloc(png_, row_bytes * size_t(height())));
    for (int pass = 0; pass < pass_count_; ++pass) {
      for (int y = 0; y < height(); ++y)
        png_read_row(png_, whole_ + row_bytes * size_t(y), nullptr);
    }
  }

  Status skip_rows(int64_t row_count) {
    next_row_ += row_count;
    return guarded([&] {
      for (int64_t i = 0; i < row_count; ++i) png_read_row(png_, spare_row_, nullptr);
    });
  }

  const DecodeOptions options_;
  ErrorTrap trap_;
  Arena arena_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  std::span<const std::byte> unread_;
  uint8_t* spare_row_ = nullptr;
  uint8_t* whole_ = nullptr;
  int64_t next_row_ = 0;
  int pass_count_ = 1;
  int orientation_ = 1;
  bool has_alpha_ = false;
};

}  // namespace

bool is_png(std::span<const std::byte> encoded) {
  static constexpr uint8_t kSignature[kSignatureSize] = {0x89, 'P',  'N',  'G',
                                                         '\r', '\n', 0x1a, '\n'};
  return encoded.size() >= sizeof(kSignature) &&
         std::memcmp(encoded.data(), kSignature, sizeof(kSignature)) == 0;
}

std::unique_ptr<RowSource> make_png_source(const DecodeOptions& options) {
  return std::make_unique<PngSource>(options);
}

}  // namespace yard::images
