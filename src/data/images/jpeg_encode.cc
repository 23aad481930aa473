#include <cstdlib>

#include "images/jpeg_internal.h"
#include "images/picture.h"

namespace yard::images {
namespace {

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

  JpegTrap trap_ = {};
  jpeg_compress_struct info_ = {};
  unsigned char* buffer_ = nullptr;
  unsigned long buffer_bytes_ = 0;
  bool created_ = false;
};

}  // namespace

Result<std::vector<std::byte>> encode_jpeg(const Picture& picture, int quality) {
  YARD_CHECK(quality >= 1 && quality <= 100);
  YARD_CHECK(picture.width > 0 && picture.height > 0);
  YARD_CHECK(picture.pixels.size() == size_t(picture.width) * size_t(picture.height) * 3);
  Encoder encoder;
  return encoder.encode(picture, quality);
}

}  // namespace yard::images
