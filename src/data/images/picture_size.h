// PictureSizeFinder: the size of a picture by its headers alone, from bytes that come piece by
// piece, at next to no cost: nothing is decoded, no checksum verified, pixels are passed over.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "images/view.h"

namespace yard::images {

// Whether files of that extension, in lower case, are read here: "jpg", "jpeg", "png", "webp".
bool is_picture_extension(std::string_view extension);

// Not thread-safe. Holds 64 KiB at most, whatever it is given.
class PictureSizeFinder {
 public:
  // The next bytes of the file.
  void take(std::span<const std::byte> piece);

  // What has been taken decides it: what follows would change nothing.
  bool is_settled() const { return step_ == Step::kFound || step_ == Step::kGivenUp; }

  // Once settled, or when all of the file has been taken: its size, upright as
  // PictureInfo::size is. nullopt: no JPEG, PNG or WebP, damaged, cut off before its size is
  // certain, or of a form that PictureReader refuses by its header.
  std::optional<Size> size() const;

 private:
  enum class Step {
    kMagic,
    kJpegMarker,
    kJpegLength,
    kJpegFrame,
    kJpegExif,
    kPngMagic,
    kPngChunk,
    kPngHeader,
    kPngExif,
    kWebpMagic,
    kWebpChunk,
    kWebpLossy,
    kWebpLossless,
    kWebpCanvas,
    kWebpExif,
    kFound,
    kGivenUp,
  };

  void run(std::span<const std::byte> bytes);
  void next(Step step, size_t byte_count);
  void next_after(uint64_t skipped_bytes, Step step, size_t byte_count);
  void read_jpeg_marker(std::span<const std::byte> bytes);
  void read_jpeg_length(std::span<const std::byte> bytes);
  void read_png_chunk(std::span<const std::byte> bytes);
  void read_webp_chunk(std::span<const std::byte> bytes);
  void read_canvas(std::span<const std::byte> bytes);
  void set_size(uint64_t width, uint64_t height);
  void end_with_exif(std::span<const std::byte> tiff);

  Step step_ = Step::kMagic;
  size_t wanted_bytes_ = 2;     // of pending_, for the step
  uint64_t skipped_bytes_ = 0;  // to be passed over first
  std::vector<std::byte> pending_;
  Size stored_;  // 0 x 0: not known yet
  int orientation_ = 1;
  bool has_exif_ = false;
  uint32_t marker_ = 0;
  uint64_t segment_bytes_ = 0;  // of the JPEG segment or chunk whose content is read
};

// Of a file that is at hand as a whole.
std::optional<Size> picture_size(std::span<const std::byte> encoded);

}  // namespace yard::images
