// The only file that knows libjpeg(-turbo). Its errors arrive by longjmp: run_guarded() is the one
// place that sets the target, and what runs under it owns nothing that needs a destructor.
#include <csetjmp>
#include <cstdio>  // jpeglib.h needs FILE and does not include it
#include <cstring>

#include <jpeglib.h>
// jerror.h after jpeglib.h: it only adds names.
#include <jerror.h>

#include <fmt/format.h>

#include "images/codec_internal.h"

namespace yard::images {
namespace {

struct ErrorTrap {
  jpeg_error_mgr manager;  // first: libjpeg hands back a pointer to it
  std::jmp_buf target;
  char message[JMSG_LENGTH_MAX];
  int message_code;
};

[[noreturn]] void trap_error(j_common_ptr info) {
  auto* trap = reinterpret_cast<ErrorTrap*>(info->err);
  trap->message_code = info->err->msg_code;
  info->err->format_message(info, trap->message);
  std::longjmp(trap->target, 1);
}

// Real cameras and editors cause these; no pixel is lost.
bool is_harmless(int warning) {
  return warning == JWRN_EXTRANEOUS_DATA || warning == JWRN_JFIF_MAJOR ||
         warning == JWRN_ADOBE_XFORM || warning == JWRN_TOO_MUCH_DATA;
}

// libjpeg calls damage a warning (level -1) and invents the missing pixels; we do not.
void trap_warning(j_common_ptr info, int level) {
  if (level < 0 && !is_harmless(info->err->msg_code)) trap_error(info);
}

void init_trap(ErrorTrap& trap) {
  jpeg_std_error(&trap.manager);
  trap.manager.error_exit = trap_error;
  trap.manager.emit_message = trap_warning;
}

template <typename Body>
bool run_guarded(ErrorTrap& trap, Body body) {
  if (setjmp(trap.target) != 0) return false;
  body();
  return true;
}

Error error_of(const ErrorTrap& trap) {
  switch (trap.message_code) {
    case JERR_BAD_PRECISION:
    case JERR_SOF_UNSUPPORTED:
    case JERR_ARITH_NOTIMPL:
    case JERR_CONVERSION_NOTIMPL:
    case JERR_IMAGE_TOO_BIG:
      return Error{Code::kInvalidArgument, fmt::format("JPEG: {}", trap.message)};
    case JERR_OUT_OF_MEMORY:
      return Error{Code::kExhausted, fmt::format("JPEG: {}", trap.message)};
    default:
      return Error{Code::kCorrupt, fmt::format("JPEG: {}", trap.message)};
  }
}

// A progressive file of a few bytes per scan could keep a decoder busy for hours.
constexpr int kScanCountMax = 200;

void refuse_endless_scans(j_common_ptr info) {
  const auto* decoder = reinterpret_cast<j_decompress_ptr>(info);
  if (decoder->input_scan_number <= kScanCountMax) return;
  info->err->msg_code = JERR_BAD_PROGRESSION;
  trap_error(info);
}

class Decoder {
 public:
  Decoder() {
    init_trap(trap_);
    info_.err = &trap_.manager;
    created_ = run_guarded(trap_, [this] { jpeg_create_decompress(&info_); });
    progress_.progress_monitor = refuse_endless_scans;
    info_.progress = &progress_;
  }
  ~Decoder() {
    if (created_) jpeg_destroy_decompress(&info_);
  }
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  // Width and height of the whole picture are then known.
  Status read_header(std::span<const std::byte> encoded) {
    const bool done = created_ && run_guarded(trap_, [&] {
                        jpeg_mem_src(&info_, reinterpret_cast<const unsigned char*>(encoded.data()),
                                     encoded.size());
                        jpeg_save_markers(&info_, JPEG_APP0 + 1, 0xffff);
                        jpeg_read_header(&info_, TRUE);
                      });
    if (!done) return error_of(trap_);
    return Ok{};
  }

  uint32_t width() const { return info_.image_width; }
  uint32_t height() const { return info_.image_height; }

  int orientation() const {
    constexpr size_t kSignatureSize = 6;
    for (auto* marker = info_.marker_list; marker != nullptr; marker = marker->next) {
      if (marker->marker != JPEG_APP0 + 1 || marker->data_length < kSignatureSize) continue;
      if (std::memcmp(marker->data, "Exif\0", kSignatureSize) != 0) continue;
      return exif_orientation(
          std::as_bytes(std::span(marker->data, marker->data_length)).subspan(kSignatureSize));
    }
    return 1;
  }

  Result<Picture> read_pixels(int shorter_side_min) {
    const bool four_channels =
        info_.jpeg_color_space == JCS_CMYK || info_.jpeg_color_space == JCS_YCCK;
    info_.out_color_space = four_channels ? JCS_CMYK : JCS_RGB;
    info_.scale_num = 1;
    info_.scale_denom = scale_denominator(shorter_side_min);
    if (!run_guarded(trap_, [this] { jpeg_start_decompress(&info_); })) return error_of(trap_);

    Picture picture;
    picture.width = int(info_.output_width);
    picture.height = int(info_.output_height);
    const size_t row_bytes = size_t(info_.output_width) * 3;
    picture.pixels.resize(row_bytes * info_.output_height);
    std::vector<uint8_t> cmyk(four_channels ? size_t(info_.output_width) * 4 : 0);
    if (!run_guarded(trap_, [&] { read_rows(picture.pixels.data(), row_bytes, cmyk); }))
      return error_of(trap_);
    return picture;
  }

 private:
  unsigned scale_denominator(int shorter_side_min) const {
    if (shorter_side_min <= 0) return 1;
    const unsigned shorter = std::min(info_.image_width, info_.image_height);
    for (unsigned denominator : {8U, 4U, 2U}) {
      if ((shorter + denominator - 1) / denominator >= unsigned(shorter_side_min))
        return denominator;
    }
    return 1;
  }

  void read_rows(uint8_t* out, size_t row_bytes, std::vector<uint8_t>& cmyk) {
    while (info_.output_scanline < info_.output_height) {
      JSAMPROW row = out + size_t(info_.output_scanline) * row_bytes;
      JSAMPROW target = cmyk.empty() ? row : cmyk.data();
      jpeg_read_scanlines(&info_, &target, 1);
      if (!cmyk.empty()) cmyk_to_rgb(cmyk.data(), row, info_.output_width);
    }
    jpeg_finish_decompress(&info_);
  }

  // Every known writer of such JPEGs follows Adobe: 255 means no ink.
  static void cmyk_to_rgb(const uint8_t* cmyk, uint8_t* rgb, size_t pixel_count) {
    for (size_t i = 0; i < pixel_count; ++i, cmyk += 4, rgb += 3) {
      for (int c = 0; c < 3; ++c) rgb[c] = uint8_t((cmyk[c] * cmyk[3] + 127) / 255);
    }
  }

  ErrorTrap trap_ = {};
  jpeg_decompress_struct info_ = {};
  jpeg_progress_mgr progress_ = {};
  bool created_ = false;
};

class Encoder {
 public:
  Encoder() {
    init_trap(trap_);
    info_.err = &trap_.manager;
    created_ = run_guarded(trap_, [this] { jpeg_create_compress(&info_); });
  }
  ~Encoder() {
    if (created_) jpeg_destroy_compress(&info_);
    std::free(buffer_);  // jpeg_mem_dest allocates it with malloc
  }
  Encoder(const Encoder&) = delete;
  Encoder& operator=(const Encoder&) = delete;

  Result<std::vector<std::byte>> encode(const Picture& picture, int quality) {
    const bool done = created_ && run_guarded(trap_, [&] { write_rows(picture, quality); });
    if (!done) return error_of(trap_);
    const auto bytes = std::as_bytes(std::span(buffer_, buffer_bytes_));
    return std::vector<std::byte>(bytes.begin(), bytes.end());
  }

 private:
  void write_rows(const Picture& picture, int quality) {
    jpeg_mem_dest(&info_, &buffer_, &buffer_bytes_);
    info_.image_width = unsigned(picture.width);
    info_.image_height = unsigned(picture.height);
    info_.input_components = 3;
    info_.in_color_space = JCS_RGB;
    jpeg_set_defaults(&info_);
    jpeg_set_quality(&info_, quality, TRUE);
    jpeg_start_compress(&info_, TRUE);
    while (info_.next_scanline < info_.image_height) {
      const size_t offset = size_t(info_.next_scanline) * info_.image_width * 3;
      // libjpeg takes no const, and only reads.
      JSAMPROW row = const_cast<uint8_t*>(picture.pixels.data()) + offset;
      jpeg_write_scanlines(&info_, &row, 1);
    }
    jpeg_finish_compress(&info_);
  }

  ErrorTrap trap_ = {};
  jpeg_compress_struct info_ = {};
  unsigned char* buffer_ = nullptr;
  unsigned long buffer_bytes_ = 0;
  bool created_ = false;
};

}  // namespace

bool is_jpeg(std::span<const std::byte> encoded) {
  return encoded.size() >= 3 && encoded[0] == std::byte{0xff} && encoded[1] == std::byte{0xd8} &&
         encoded[2] == std::byte{0xff};
}

Result<Decoded> decode_jpeg(std::span<const std::byte> encoded, const DecodeOptions& options) {
  Decoder decoder;
  YARD_TRY(decoder.read_header(encoded));
  YARD_TRY(check_pixel_count(decoder.width(), decoder.height(), options));
  const int orientation = decoder.orientation();  // read_pixels() drops the markers
  YARD_ASSIGN(Picture picture, decoder.read_pixels(options.shorter_side_min));
  return Decoded{std::move(picture), orientation};
}

Result<std::vector<std::byte>> encode_jpeg(const Picture& picture, int quality) {
  YARD_CHECK(quality >= 1 && quality <= 100);
  YARD_CHECK(picture.width > 0 && picture.height > 0);
  YARD_CHECK(picture.pixels.size() == size_t(picture.width) * size_t(picture.height) * 3);
  Encoder encoder;
  return encoder.encode(picture, quality);
}

}  // namespace yard::images
