#include "images/picture_size.h"

#include <algorithm>
#include <cstring>

#include "images/row_source_internal.h"

namespace yard::images {
namespace {

// A JPEG's segment has no more; what is larger elsewhere is no orientation.
constexpr size_t kPendingBytesMax = 64 << 10;
constexpr size_t kChunkHeadBytes = 8;
constexpr size_t kCrcBytes = 4;
constexpr size_t kCanvasBytes = 10;
// libpng's own limit for a side.
constexpr uint64_t kPngSideMax = 1'000'000;

uint32_t big_endian(std::span<const std::byte> bytes) {
  uint32_t value = 0;
  for (const std::byte byte : bytes) value = value << 8 | uint32_t(byte);
  return value;
}

uint32_t little_endian(std::span<const std::byte> bytes) {
  uint32_t value = 0;
  for (size_t i = bytes.size(); i-- > 0;) value = value << 8 | uint32_t(bytes[i]);
  return value;
}

bool is(std::span<const std::byte> bytes, std::string_view text) {
  return bytes.size() >= text.size() && std::memcmp(bytes.data(), text.data(), text.size()) == 0;
}

// Some writers of WebP keep the signature that only JPEG needs.
constexpr std::string_view kExifSignature("Exif\0\0", 6);

std::span<const std::byte> without_signature(std::span<const std::byte> block) {
  return is(block, kExifSignature) ? block.subspan(kExifSignature.size()) : block;
}

// JPEG's markers (ITU-T T.81, table B.1).
constexpr uint32_t kEndOfImage = 0xd9, kStartOfScan = 0xda, kApp1 = 0xe1;
bool is_frame(uint32_t marker) {
  return marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 && marker != 0xcc;
}
// Baseline, extended, progressive; with Huffman codes or arithmetic ones.
bool is_frame_read_here(uint32_t marker) {
  return (marker >= 0xc0 && marker <= 0xc2) || marker == 0xc9 || marker == 0xca;
}
bool stands_alone(uint32_t marker) {
  return marker == 0x01 || (marker >= 0xd0 && marker <= 0xd8);
}

}  // namespace

bool is_picture_extension(std::string_view extension) {
  return extension == "jpg" || extension == "jpeg" || extension == "png" || extension == "webp";
}

void PictureSizeFinder::next(Step step, size_t byte_count) {
  next_after(0, step, byte_count);
}

void PictureSizeFinder::next_after(uint64_t skipped_bytes, Step step, size_t byte_count) {
  step_ = byte_count <= kPendingBytesMax ? step : Step::kGivenUp;
  skipped_bytes_ = skipped_bytes;
  wanted_bytes_ = byte_count;
}

void PictureSizeFinder::take(std::span<const std::byte> piece) {
  while (!is_settled()) {
    const auto skipped = std::min<uint64_t>(skipped_bytes_, piece.size());
    skipped_bytes_ -= skipped;
    piece = piece.subspan(skipped);
    const size_t taken = std::min(wanted_bytes_ - pending_.size(), piece.size());
    pending_.insert(pending_.end(), piece.begin(), piece.begin() + std::ptrdiff_t(taken));
    piece = piece.subspan(taken);
    if (skipped_bytes_ > 0 || pending_.size() < wanted_bytes_) return;
    const std::vector<std::byte> bytes = std::move(pending_);
    pending_.clear();
    run(bytes);
  }
}

void PictureSizeFinder::run(std::span<const std::byte> bytes) {
  switch (step_) {
    case Step::kMagic:
      if (is(bytes, "\xff\xd8")) return next(Step::kJpegMarker, 2);
      if (is(bytes, "\x89P")) return next(Step::kPngMagic, 6);
      if (is(bytes, "RI")) return next(Step::kWebpMagic, 10);
      return next(Step::kGivenUp, 0);
    case Step::kJpegMarker:
      return read_jpeg_marker(bytes);
    case Step::kJpegLength:
      return read_jpeg_length(bytes);
    case Step::kJpegFrame:
      // Another precision than 8 bits is refused, and a height that comes later (0).
      if (uint32_t(bytes[0]) != 8 || stored_.width != 0) return next(Step::kGivenUp, 0);
      set_size(big_endian(bytes.subspan(3, 2)), big_endian(bytes.subspan(1, 2)));
      if (is_settled()) return;
      return next_after(segment_bytes_ - bytes.size(), Step::kJpegMarker, 2);
    case Step::kJpegExif:
      if (is(bytes, kExifSignature)) {
        has_exif_ = true;
        orientation_ = exif_orientation(bytes.subspan(kExifSignature.size()));
      }
      return next(Step::kJpegMarker, 2);
    case Step::kPngMagic:
      if (!is(bytes, "NG\r\n\x1a\n")) return next(Step::kGivenUp, 0);
      return next(Step::kPngChunk, kChunkHeadBytes);
    case Step::kPngChunk:
      return read_png_chunk(bytes);
    case Step::kPngHeader:
      if (std::max(big_endian(bytes.first(4)), big_endian(bytes.subspan(4, 4))) > kPngSideMax)
        return next(Step::kGivenUp, 0);
      set_size(big_endian(bytes.first(4)), big_endian(bytes.subspan(4, 4)));
      if (is_settled()) return;
      return next_after(kCrcBytes, Step::kPngChunk, kChunkHeadBytes);
    case Step::kPngExif:
      return end_with_exif(bytes.first(segment_bytes_));
    case Step::kWebpMagic:
      if (!is(bytes, "FF") || !is(bytes.subspan(6), "WEBP")) return next(Step::kGivenUp, 0);
      return next(Step::kWebpChunk, kChunkHeadBytes);
    case Step::kWebpChunk:
      return read_webp_chunk(bytes);
    case Step::kWebpLossy:
    case Step::kWebpLossless:
    case Step::kWebpCanvas:
      return read_canvas(bytes);
    case Step::kWebpExif:
      return end_with_exif(without_signature(bytes));
    case Step::kFound:
    case Step::kGivenUp:
      return;
  }
}

void PictureSizeFinder::set_size(uint64_t width, uint64_t height) {
  const auto pixel_count_max = uint64_t(DecodeOptions().pixel_count_max);
  if (width == 0 || height == 0 || width * height > pixel_count_max) return next(Step::kGivenUp, 0);
  stored_ = {int(width), int(height)};
}

void PictureSizeFinder::end_with_exif(std::span<const std::byte> tiff) {
  orientation_ = exif_orientation(tiff);
  next(Step::kFound, 0);
}

// ---- JPEG: segments up to the first scan, for an orientation may stand behind the size

void PictureSizeFinder::read_jpeg_marker(std::span<const std::byte> bytes) {
  if (bytes[0] != std::byte{0xff}) return next(Step::kGivenUp, 0);
  marker_ = uint32_t(bytes[1]);
  if (marker_ == 0xff) {  // filling
    next(Step::kJpegMarker, 2);
    pending_.push_back(bytes[1]);
    return;
  }
  if (marker_ == kStartOfScan) return next(stored_.width != 0 ? Step::kFound : Step::kGivenUp, 0);
  if (marker_ == kEndOfImage || marker_ == 0 || stands_alone(marker_))
    return next(Step::kGivenUp, 0);
  next(Step::kJpegLength, 2);
}

void PictureSizeFinder::read_jpeg_length(std::span<const std::byte> bytes) {
  constexpr size_t kLengthBytes = 2, kFrameBytes = 6;
  const uint32_t length = big_endian(bytes);
  if (length < kLengthBytes) return next(Step::kGivenUp, 0);
  segment_bytes_ = length - kLengthBytes;
  if (is_frame(marker_)) {
    const bool is_readable = is_frame_read_here(marker_) && segment_bytes_ >= kFrameBytes;
    return next(is_readable ? Step::kJpegFrame : Step::kGivenUp, kFrameBytes);
  }
  if (marker_ == kApp1 && !has_exif_) return next(Step::kJpegExif, segment_bytes_);
  next_after(segment_bytes_, Step::kJpegMarker, 2);
}

// ---- PNG: all chunks, for the orientation may stand behind the pixels

void PictureSizeFinder::read_png_chunk(std::span<const std::byte> bytes) {
  constexpr uint32_t kHeaderBytes = 13;
  segment_bytes_ = big_endian(bytes.first(4));
  const auto tag = bytes.subspan(4);
  if (stored_.width == 0) {
    const bool is_header = is(tag, "IHDR") && segment_bytes_ == kHeaderBytes;
    return next(is_header ? Step::kPngHeader : Step::kGivenUp, kHeaderBytes);
  }
  if (is(tag, "eXIf")) return next(Step::kPngExif, segment_bytes_ + kCrcBytes);
  next_after(segment_bytes_ + kCrcBytes, Step::kPngChunk, kChunkHeadBytes);
}

// ---- WebP (its container specification, and RFC 6386 and 9649 for the two codecs)

void PictureSizeFinder::read_webp_chunk(std::span<const std::byte> bytes) {
  segment_bytes_ = little_endian(bytes.subspan(4));
  if (stored_.width == 0) {
    if (is(bytes, "VP8 ")) return next(Step::kWebpLossy, 10);
    if (is(bytes, "VP8L")) return next(Step::kWebpLossless, 5);
    const bool is_canvas = is(bytes, "VP8X") && segment_bytes_ >= kCanvasBytes;
    return next(is_canvas ? Step::kWebpCanvas : Step::kGivenUp, kCanvasBytes);
  }
  if (is(bytes, "EXIF")) return next(Step::kWebpExif, segment_bytes_);
  next_after(segment_bytes_ + segment_bytes_ % 2, Step::kWebpChunk, kChunkHeadBytes);
}

void PictureSizeFinder::read_canvas(std::span<const std::byte> bytes) {
  constexpr uint32_t kSideMask = 0x3fff, kExifFlag = 0x08;
  if (step_ == Step::kWebpLossy) {
    if (!is(bytes.subspan(3), "\x9d\x01\x2a")) return next(Step::kGivenUp, 0);
    set_size(little_endian(bytes.subspan(6, 2)) & kSideMask,
             little_endian(bytes.subspan(8, 2)) & kSideMask);
  } else if (step_ == Step::kWebpLossless) {
    if (bytes[0] != std::byte{0x2f}) return next(Step::kGivenUp, 0);
    const uint32_t sides = little_endian(bytes.subspan(1, 4));
    set_size((sides & kSideMask) + 1, (sides >> 14 & kSideMask) + 1);
  } else {
    set_size(uint64_t{little_endian(bytes.subspan(4, 3))} + 1,
             uint64_t{little_endian(bytes.subspan(7, 3))} + 1);
    if (!is_settled() && (uint32_t(bytes[0]) & kExifFlag) != 0)
      return next_after(segment_bytes_ + segment_bytes_ % 2 - bytes.size(), Step::kWebpChunk,
                        kChunkHeadBytes);
  }
  if (!is_settled()) next(Step::kFound, 0);
}

std::optional<Size> PictureSizeFinder::size() const {
  const bool goes_on = step_ == Step::kPngChunk || step_ == Step::kWebpChunk;
  if (step_ != Step::kFound && !(goes_on && stored_.width != 0)) return std::nullopt;
  if (turn_of(orientation_).transposed) return Size{stored_.height, stored_.width};
  return stored_;
}

std::optional<Size> picture_size(std::span<const std::byte> encoded) {
  PictureSizeFinder finder;
  finder.take(encoded);
  return finder.size();
}

}  // namespace yard::images
