// Bare libjpeg-turbo calls into one reused buffer: as a program would call it that wants the pixels
// and no more.
#pragma once

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include <jpeglib.h>

namespace yard::bench {

class BareDecoder {
 public:
  BareDecoder() {
    info_.err = jpeg_std_error(&errors_);
    jpeg_create_decompress(&info_);
  }
  ~BareDecoder() { jpeg_destroy_decompress(&info_); }
  BareDecoder(const BareDecoder&) = delete;
  BareDecoder& operator=(const BareDecoder&) = delete;

  // At 1/2, 1/4 or 1/8 as long as the shorter side stays at least shorter_side_min.
  void decode(const std::string& encoded, unsigned shorter_side_min) {
    jpeg_mem_src(&info_, reinterpret_cast<const unsigned char*>(encoded.data()), encoded.size());
    jpeg_read_header(&info_, TRUE);
    const unsigned shorter = std::min(info_.image_width, info_.image_height);
    info_.scale_num = info_.scale_denom = 1;
    while (info_.scale_denom < 8 && shorter / (info_.scale_denom * 2) >= shorter_side_min)
      info_.scale_denom *= 2;
    info_.out_color_space = JCS_RGB;
    jpeg_start_decompress(&info_);
    const size_t row_bytes = size_t{info_.output_width} * 3;
    pixels_.resize(row_bytes * info_.output_height);
    while (info_.output_scanline < info_.output_height) {
      JSAMPROW row = pixels_.data() + row_bytes * info_.output_scanline;
      jpeg_read_scanlines(&info_, &row, 1);
    }
    jpeg_finish_decompress(&info_);
  }

 private:
  jpeg_decompress_struct info_ = {};
  jpeg_error_mgr errors_ = {};
  std::vector<unsigned char> pixels_;
};

}  // namespace yard::bench
