// Reading JPEG. libjpeg-turbo's own decompressor is kept from picture to picture.
#include <algorithm>
#include <cstring>

#include <jerror.h>

#include <fmt/format.h>
#include "images/jpeg_internal.h"
#include "images/row_source_internal.h"

namespace yard::images {
namespace {

// A progressive file of a few bytes per scan could keep a decoder busy for hours.
constexpr int kScanCountMax = 200;
// Smooth upsampling of chroma looks at the next column; the outermost one of what is decoded has
// none, so that it comes out other than in the whole picture.
constexpr int64_t kColumnMargin = 4;

void refuse_endless_scans(j_common_ptr info) {
  const auto* decoder = reinterpret_cast<j_decompress_ptr>(info);
  if (decoder->input_scan_number > kScanCountMax) raise_jpeg_error(info, JERR_BAD_PROGRESSION);
}

// Every known writer of such JPEGs follows Adobe: 255 means no ink.
void cmyk_to_rgb(uint8_t* pixel, size_t pixel_count) {
  for (size_t i = 0; i < pixel_count; ++i, pixel += 4) {
    for (int c = 0; c < 3; ++c) pixel[c] = uint8_t((pixel[c] * pixel[3] + 127) / 255);
  }
}

class JpegSource final : public RowSource {
 public:
  explicit JpegSource(const DecodeOptions& options) : options_(options) {
    init_trap(trap_);
    info_.err = &trap_.manager;
    created_ = run_guarded(trap_, [this] { jpeg_create_decompress(&info_); });
    if (!created_) return;
    memory_.install(reinterpret_cast<j_common_ptr>(&info_));
    progress_.progress_monitor = refuse_endless_scans;
    info_.progress = &progress_;
    created_ = run_guarded(trap_, [this] { jpeg_save_markers(&info_, JPEG_APP0 + 1, 0xffff); });
  }
  ~JpegSource() override { jpeg_destroy_decompress(&info_); }
  JpegSource(const JpegSource&) = delete;
  JpegSource& operator=(const JpegSource&) = delete;

  Status open(std::span<const std::byte> encoded) override {
    if (!created_) return error_of(trap_);
    YARD_TRY(guarded([&] {
      jpeg_abort_decompress(&info_);  // what an earlier picture may have left half done
      jpeg_mem_src(&info_, reinterpret_cast<const unsigned char*>(encoded.data()), encoded.size());
      jpeg_read_header(&info_, TRUE);
    }));
    // Newer versions of the library have other calls for these; the memory below is for bytes.
    if (info_.data_precision != 8)
      return Error{Code::kInvalidArgument,
                   fmt::format("JPEG: {} bits per sample, where 8 are read", info_.data_precision)};
    orientation_ = find_orientation();
    return check_pixel_count(info_.image_width, info_.image_height, options_);
  }

  int width() const override { return int(info_.image_width); }
  int height() const override { return int(info_.image_height); }
  int orientation() const override { return orientation_; }
  // libjpeg-turbo has 7/8, 6/8, 5/8 and 3/8 too, but no vector code for them: they take longer than
  // the next larger scale (measured: 5/8 takes 1.4 times as long as 8/8).
  bool can_scale_by(int denominator) const override {
    return denominator == 1 || denominator == 2 || denominator == 4 || denominator == 8;
  }

  Result<Region> start(int denominator, const Region& region) override {
    const bool four_inks = info_.jpeg_color_space == JCS_CMYK || info_.jpeg_color_space == JCS_YCCK;
    info_.out_color_space = four_inks ? JCS_CMYK : JCS_EXT_RGBX;
    info_.scale_num = 1;
    info_.scale_denom = unsigned(denominator);
    Region given = region;
    YARD_TRY(guarded([&] {
      jpeg_start_decompress(&info_);
      check_scale();
      crop_columns(given);
      if (region.y > 0) jpeg_skip_scanlines(&info_, JDIMENSION(region.y));
    }));
    return given;
  }

  Status read_rows(std::span<uint8_t* const> rows) override {
    return guarded([&] {
      for (size_t done = 0; done < rows.size();) {
        // libjpeg takes no const, and only reads the pointers.
        auto** targets = const_cast<JSAMPARRAY>(rows.data() + done);
        const JDIMENSION count =
            jpeg_read_scanlines(&info_, targets, JDIMENSION(rows.size() - done));
        if (count == 0) raise_jpeg_error(common(), JERR_CANT_SUSPEND);
        if (info_.out_color_space == JCS_CMYK) {
          for (JDIMENSION i = 0; i < count; ++i) cmyk_to_rgb(targets[i], info_.output_width);
        }
        done += count;
      }
    });
  }

  // Rows that nobody asked for need not be decoded, but a file that ends early is told.
  Status finish() override {
    return guarded([&] {
      if (info_.output_scanline == info_.output_height) {
        jpeg_finish_decompress(&info_);
        return;
      }
      if (jpeg_has_multiple_scans(&info_) == FALSE && !has_end_marker())
        raise_jpeg_error(common(), JERR_INPUT_EOF);
      jpeg_abort_decompress(&info_);
    });
  }

  void close() override { jpeg_abort_decompress(&info_); }

 private:
  j_common_ptr common() { return reinterpret_cast<j_common_ptr>(&info_); }

  template <typename Body>
  Status guarded(Body body) {
    if (!run_guarded(trap_, body)) return error_of(trap_);
    return Ok{};
  }

  int find_orientation() const {
    constexpr size_t kSignatureSize = 6;
    for (auto* marker = info_.marker_list; marker != nullptr; marker = marker->next) {
      if (marker->marker != JPEG_APP0 + 1 || marker->data_length < kSignatureSize) continue;
      if (std::memcmp(marker->data, "Exif\0", kSignatureSize) != 0) continue;
      return exif_orientation(
          std::as_bytes(std::span(marker->data, marker->data_length)).subspan(kSignatureSize));
    }
    return 1;
  }

  // Rows are as long as the caller has made room for.
  void check_scale() {
    const auto scaled = [&](JDIMENSION side) {
      return (side + info_.scale_denom - 1) / info_.scale_denom;
    };
    if (info_.output_width != scaled(info_.image_width) ||
        info_.output_height != scaled(info_.image_height))
      raise_jpeg_error(common(), JERR_BAD_DCTSIZE);
  }

  void crop_columns(Region& region) {
    const auto output_width = int64_t{info_.output_width};
    const int64_t begin = std::max<int64_t>(0, region.x - kColumnMargin);
    const int64_t end = std::min(output_width, region.x + region.width + kColumnMargin);
    if (begin == 0 && end == output_width) {
      region.x = 0;
      region.width = output_width;
      return;
    }
    auto x = JDIMENSION(begin), width = JDIMENSION(end - begin);
    jpeg_crop_scanline(&info_, &x, &width);
    region.x = int64_t{x};
    region.width = int64_t{info_.output_width};
  }

  // In a scan's data 0xff is followed by 0 or by a marker that belongs there; the end marker cannot
  // occur by chance.
  bool has_end_marker() const {
    const JOCTET* at = info_.src->next_input_byte;
    size_t left = info_.src->bytes_in_buffer;
    if (info_.unread_marker == JPEG_EOI) return true;
    while (left >= 2) {
      const auto* found = static_cast<const JOCTET*>(std::memchr(at, 0xff, left - 1));
      if (found == nullptr) return false;
      if (found[1] == JPEG_EOI) return true;
      left -= size_t(found + 1 - at);
      at = found + 1;
    }
    return false;
  }

  const DecodeOptions options_;
  JpegTrap trap_ = {};
  JpegMemory memory_;
  jpeg_decompress_struct info_ = {};
  jpeg_progress_mgr progress_ = {};
  bool created_ = false;
  int orientation_ = 1;
};

}  // namespace

bool is_jpeg(std::span<const std::byte> encoded) {
  return encoded.size() >= 3 && encoded[0] == std::byte{0xff} && encoded[1] == std::byte{0xd8} &&
         encoded[2] == std::byte{0xff};
}

std::unique_ptr<RowSource> make_jpeg_source(const DecodeOptions& options) {
  return std::make_unique<JpegSource>(options);
}

}  // namespace yard::images
