// Reading WebP. libwebp decodes into a buffer of ours; the container is read by its demuxer.
#include <webp/decode.h>
#include <webp/demux.h>

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "images/row_source_internal.h"

namespace yard::images {
namespace {

constexpr size_t kKeepBytesMax = size_t{32} << 20;

Error corrupt(std::string_view what) {
  return Error{Code::kCorrupt, fmt::format("WebP: {}", what)};
}

Error error_of(VP8StatusCode status) {
  switch (status) {
    case VP8_STATUS_OUT_OF_MEMORY:
      return Error{Code::kExhausted, "WebP: out of memory"};
    case VP8_STATUS_SUSPENDED:
    case VP8_STATUS_NOT_ENOUGH_DATA:
      return corrupt("truncated");
    case VP8_STATUS_UNSUPPORTED_FEATURE:
      return Error{Code::kInvalidArgument, "WebP: unsupported feature"};
    default:
      return corrupt(fmt::format("damaged (libwebp status {})", int(status)));
  }
}

class WebpSource final : public RowSource {
 public:
  explicit WebpSource(const DecodeOptions& options) : options_(options) {}
  ~WebpSource() override { close(); }
  WebpSource(const WebpSource&) = delete;
  WebpSource& operator=(const WebpSource&) = delete;

  Status open(std::span<const std::byte> encoded) override {
    close();
    const WebPData data = {reinterpret_cast<const uint8_t*>(encoded.data()), encoded.size()};
    demuxer_ = WebPDemux(&data);
    if (demuxer_ == nullptr) return corrupt("truncated or damaged container");
    const uint32_t width = WebPDemuxGetI(demuxer_, WEBP_FF_CANVAS_WIDTH);
    const uint32_t height = WebPDemuxGetI(demuxer_, WEBP_FF_CANVAS_HEIGHT);
    if (width == 0 || height == 0) return corrupt("no pixels");
    YARD_TRY(check_pixel_count(width, height, options_));
    width_ = int(width);
    height_ = int(height);
    orientation_ = find_orientation();
    return Ok{};
  }

  int width() const override { return width_; }
  int height() const override { return height_; }
  int orientation() const override { return orientation_; }

  // Of an animation the first frame, where it lies on the canvas.
  Result<Region> start(int, const Region& region) override {
    WebPIterator frame;
    if (WebPDemuxGetFrame(demuxer_, 1, &frame) == 0) return corrupt("no frame");
    Status done = decode_frame(frame);
    WebPDemuxReleaseIterator(&frame);
    YARD_TRY(std::move(done));
    next_row_ = region.y;
    return Region{0, region.y, width_, region.height};
  }

  Status read_rows(std::span<uint8_t* const> rows) override {
    const size_t row_bytes = size_t(width_) * kPixelBytes;
    for (uint8_t* row : rows) {
      std::memcpy(row, pixels_.data() + row_bytes * size_t(next_row_++), row_bytes);
      if (has_alpha_) lay_over(row, width_, options_.background);
    }
    return Ok{};
  }

  Status finish() override { return Ok{}; }

  void close() override {
    WebPDemuxDelete(demuxer_);
    demuxer_ = nullptr;
    if (pixels_.size() <= kKeepBytesMax) return;
    pixels_.clear();
    pixels_.shrink_to_fit();
  }

 private:
  int find_orientation() const {
    WebPChunkIterator chunk;
    if (WebPDemuxGetChunk(demuxer_, "EXIF", 1, &chunk) == 0) return 1;
    auto block = std::as_bytes(std::span(chunk.chunk.bytes, chunk.chunk.size));
    // Some writers keep the signature that only JPEG needs.
    constexpr size_t kSignatureSize = 6;
    if (block.size() >= kSignatureSize && std::memcmp(block.data(), "Exif\0", kSignatureSize) == 0)
      block = block.subspan(kSignatureSize);
    const int orientation = exif_orientation(block);
    WebPDemuxReleaseChunkIterator(&chunk);
    return orientation;
  }

  Status decode_frame(const WebPIterator& frame) {
    if (frame.complete == 0) return corrupt("truncated");
    WebPDecoderConfig config;
    if (WebPInitDecoderConfig(&config) == 0) return Error{Code::kInternal, "WebP: other version"};
    const VP8StatusCode features =
        WebPGetFeatures(frame.fragment.bytes, frame.fragment.size, &config.input);
    if (features != VP8_STATUS_OK) return error_of(features);
    if (frame.x_offset < 0 || frame.y_offset < 0 || config.input.width > width_ - frame.x_offset ||
        config.input.height > height_ - frame.y_offset)
      return corrupt("frame lies outside the canvas");

    const bool covers = config.input.width == width_ && config.input.height == height_;
    has_alpha_ = config.input.has_alpha != 0 || !covers;
    const size_t stride = size_t(width_) * kPixelBytes;
    pixels_.resize(stride * size_t(height_));
    if (!covers) std::fill(pixels_.begin(), pixels_.end(), uint8_t{0});
    const size_t offset = size_t(frame.y_offset) * stride + size_t(frame.x_offset) * kPixelBytes;
    config.output.colorspace = MODE_RGBA;
    config.output.is_external_memory = 1;
    config.output.u.RGBA = {pixels_.data() + offset, int(stride), pixels_.size() - offset};
    const VP8StatusCode status = WebPDecode(frame.fragment.bytes, frame.fragment.size, &config);
    if (status != VP8_STATUS_OK) return error_of(status);
    return Ok{};
  }

  const DecodeOptions options_;
  WebPDemuxer* demuxer_ = nullptr;
  std::vector<uint8_t> pixels_;  // RGBA
  int64_t next_row_ = 0;
  int width_ = 0;
  int height_ = 0;
  int orientation_ = 1;
  bool has_alpha_ = false;
};

}  // namespace

bool is_webp(std::span<const std::byte> encoded) {
  return encoded.size() >= 12 && std::memcmp(encoded.data(), "RIFF", 4) == 0 &&
         std::memcmp(encoded.data() + 8, "WEBP", 4) == 0;
}

std::unique_ptr<RowSource> make_webp_source(const DecodeOptions& options) {
  return std::make_unique<WebpSource>(options);
}

}  // namespace yard::images
