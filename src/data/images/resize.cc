// What is done to a picture in memory: the same resampling as a PictureReader's.
#include "images/resampler_internal.h"

namespace yard::images {
namespace {

class PictureSource final : public RowSource {
 public:
  explicit PictureSource(const Picture& picture) : picture_(picture) {
    YARD_CHECK(picture.width >= 1 && picture.height >= 1);
    YARD_CHECK(picture.pixels.size() == size_t(picture.width) * size_t(picture.height) * 3);
  }
  Status open(std::span<const std::byte>) override { return Ok{}; }
  int width() const override { return picture_.width; }
  int height() const override { return picture_.height; }
  int orientation() const override { return 1; }

  Result<Region> start(int, const Region& region) override {
    columns_ = region;
    next_row_ = region.y;
    return region;
  }

  Status read_rows(std::span<uint8_t* const> rows) override {
    for (uint8_t* out : rows) {
      const uint8_t* in = picture_.pixels.data() + (next_row_++ * picture_.width + columns_.x) * 3;
      widen_pixels(in, size_t(columns_.width), out);
    }
    return Ok{};
  }

  Status finish() override { return Ok{}; }

 private:
  const Picture& picture_;
  Region columns_;
  int64_t next_row_ = 0;
};

void render(const Picture& picture, const View& view, const RenderOptions& options,
            std::span<std::byte> out) {
  PictureSource source(picture);
  Resampler resampler;
  // Nothing can fail: the picture is in memory and the view was made for it.
  YARD_CHECK(resampler.render(source, Turn{}, view, options, out).has_value());
}

}  // namespace

Picture resize(const Picture& picture, int width, int height) {
  YARD_CHECK(width >= 1 && width <= 65535 && height >= 1 && height <= 65535);
  if (width == picture.width && height == picture.height) return picture;
  Picture resized{width, height, std::vector<uint8_t>(size_t(width) * size_t(height) * 3)};
  render(picture, stretched_view({picture.width, picture.height}, {width, height}),
         {.layout = Layout::kInterleaved, .type = PixelType::kUint8},
         std::as_writable_bytes(std::span(resized.pixels)));
  return resized;
}

void crop_into(const Picture& picture, const Crop& crop, std::span<float> out) {
  YARD_CHECK(crop.size >= 1 && crop.size <= 65535);
  const View view = covering_view({picture.width, picture.height}, {crop.size, crop.size}, crop.x,
                                  crop.y, crop.flip);
  render(picture, view, {}, std::as_writable_bytes(out));
}

}  // namespace yard::images
