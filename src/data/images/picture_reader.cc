#include "images/picture_reader.h"

#include <fmt/format.h>

#include <array>

#include "images/formats_internal.h"
#include "images/resampler_internal.h"

namespace yard::images {

struct PictureReader::Impl {
  explicit Impl(const DecodeOptions& given) : options(given) {}

  const DecodeOptions options;
  std::array<std::unique_ptr<RowSource>, 3> sources;  // by Format; made when first needed
  RowSource* current = nullptr;
  int orientation = 1;
  Resampler resampler;
};

std::string_view to_string(Format format) {
  switch (format) {
    case Format::kJpeg:
      return "JPEG";
    case Format::kPng:
      return "PNG";
    case Format::kWebp:
      return "WebP";
  }
  YARD_UNREACHABLE();
}

size_t size_bytes(PixelType type) {
  switch (type) {
    case PixelType::kUint8:
      return 1;
    case PixelType::kBfloat16:
      return 2;
    case PixelType::kFloat32:
      return 4;
  }
  YARD_UNREACHABLE();
}

PictureReader::PictureReader(const DecodeOptions& options)
    : impl_(std::make_unique<Impl>(options)) {}
PictureReader::~PictureReader() = default;

Result<PictureInfo> PictureReader::open(std::span<const std::byte> encoded) {
  impl_->current = nullptr;
  YARD_ASSIGN(const Format format, format_of(encoded));
  auto& source = impl_->sources[size_t(format)];
  if (source == nullptr) source = make_source(format, impl_->options);
  if (Status opened = source->open(encoded); !opened) {
    source->close();
    return std::move(opened).error();
  }
  impl_->current = source.get();
  impl_->orientation = impl_->options.apply_orientation ? source->orientation() : 1;
  PictureInfo info = {format, {source->width(), source->height()}, source->orientation()};
  if (turn_of(impl_->orientation).transposed) std::swap(info.size.width, info.size.height);
  return info;
}

Status PictureReader::render(const View& view, const RenderOptions& options,
                             std::span<std::byte> out) {
  RowSource* source = impl_->current;
  YARD_CHECK(source != nullptr);
  impl_->current = nullptr;
  Status done = impl_->resampler.render(*source, turn_of(impl_->orientation), view, options, out);
  source->close();
  return done;
}

}  // namespace yard::images
