#include "images/testing/sample_pictures.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include <jpeglib.h>
#include <webp/encode.h>

#include "base/random.h"

namespace yard::images::testing {
namespace {

void append(std::vector<std::byte>& bytes, std::string_view more) {
  const auto* begin = reinterpret_cast<const std::byte*>(more.data());
  bytes.insert(bytes.end(), begin, begin + more.size());
}

std::string number(uint64_t value, int byte_count, bool big_endian) {
  std::string text;
  for (int i = 0; i < byte_count; ++i) text += char(value >> 8 * i & 0xff);
  if (big_endian) std::reverse(text.begin(), text.end());
  return text;
}

std::string webp_chunk(std::string_view type, std::string body) {
  std::string chunk = std::string(type) + number(body.size(), 4, false) + body;
  if (body.size() % 2 == 1) chunk += '\0';
  return chunk;
}

// What follows "RIFF", size and "WEBP" in a file of the simple kind.
std::string first_chunk(const std::vector<std::byte>& webp) {
  constexpr size_t kHeaderBytes = 12;
  return {reinterpret_cast<const char*>(webp.data()) + kHeaderBytes, webp.size() - kHeaderBytes};
}

std::vector<std::byte> webp_file(const std::string& chunks) {
  std::vector<std::byte> file;
  append(file, "RIFF" + number(chunks.size() + 4, 4, false) + "WEBP" + chunks);
  return file;
}

std::string extended_header(uint8_t flags, Size canvas) {
  return webp_chunk("VP8X", std::string{char(flags), 0, 0, 0} +
                                number(uint64_t(canvas.width - 1), 3, false) +
                                number(uint64_t(canvas.height - 1), 3, false));
}

std::vector<std::byte> take(uint8_t* bytes, size_t size) {
  std::vector<std::byte> taken(size);
  std::memcpy(taken.data(), bytes, size);
  WebPFree(bytes);
  return taken;
}

}  // namespace

uint32_t crc32(std::string_view bytes) {
  uint32_t crc = ~0U;
  for (const char byte : bytes) {
    crc ^= uint8_t(byte);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320U : 0U);
  }
  return ~crc;
}

Picture sample_picture(int width, int height) {
  Picture picture{width, height, {}};
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      const uint64_t noise = random_u64(1, uint64_t(y), uint64_t(x));
      const int edge = (x / 9 + y / 7) % 2 * 120;
      picture.pixels.push_back(uint8_t(255 * x / std::max(1, width - 1)));
      picture.pixels.push_back(uint8_t(edge + int(noise % 60)));
      picture.pixels.push_back(uint8_t(255 * y / std::max(1, height - 1)));
    }
  }
  return picture;
}

Picture solid(int width, int height, uint8_t r, uint8_t g, uint8_t b) {
  Picture picture{width, height, {}};
  for (int i = 0; i < width * height; ++i) picture.pixels.insert(picture.pixels.end(), {r, g, b});
  return picture;
}

int largest_difference(const Picture& a, const Picture& b) {
  if (a.width != b.width || a.height != b.height || a.pixels.size() != b.pixels.size()) return 256;
  int largest = 0;
  for (size_t i = 0; i < a.pixels.size(); ++i)
    largest = std::max(largest, std::abs(int(a.pixels[i]) - int(b.pixels[i])));
  return largest;
}

std::vector<std::byte> encode_jpeg_kind(const Picture& picture, const JpegKind& kind) {
  jpeg_compress_struct info = {};
  jpeg_error_mgr errors = {};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* buffer = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &buffer, &size);
  info.image_width = unsigned(picture.width);
  info.image_height = unsigned(picture.height);
  info.input_components = kind.channel_count;
  info.in_color_space = kind.channel_count == 1   ? JCS_GRAYSCALE
                        : kind.channel_count == 4 ? JCS_CMYK
                                                  : JCS_RGB;
  jpeg_set_defaults(&info);
  if (kind.channel_count == 4) jpeg_set_colorspace(&info, JCS_YCCK);
  jpeg_set_quality(&info, 92, TRUE);
  info.comp_info[0].h_samp_factor = kind.channel_count == 1 ? 1 : kind.horizontal_sampling;
  info.comp_info[0].v_samp_factor = kind.channel_count == 1 ? 1 : kind.vertical_sampling;
  if (kind.arithmetic) info.arith_code = TRUE;
  if (kind.progressive) jpeg_simple_progression(&info);
  constexpr int kLastCoefficient = 63;
  const jpeg_scan_info scans[] = {{1, {0}, 0, kLastCoefficient, 0, 0},
                                  {1, {1}, 0, kLastCoefficient, 0, 0},
                                  {1, {2}, 0, kLastCoefficient, 0, 0}};
  if (kind.scan_per_channel) {
    info.scan_info = scans;
    info.num_scans = 3;
  }
  jpeg_start_compress(&info, TRUE);
  std::vector<uint8_t> row(size_t(picture.width * kind.channel_count));
  for (int y = 0; y < picture.height; ++y) {
    for (int x = 0; x < picture.width; ++x) {
      for (int c = 0; c < kind.channel_count; ++c)
        row[size_t(x * kind.channel_count + c)] =
            c == 3 ? 200 : picture.pixels[size_t((y * picture.width + x) * 3 + c)];
    }
    JSAMPROW pointer = row.data();
    jpeg_write_scanlines(&info, &pointer, 1);
  }
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  std::vector<std::byte> encoded(size);
  std::memcpy(encoded.data(), buffer, size);
  std::free(buffer);
  return encoded;
}

std::vector<std::byte> encode_webp_lossless(const Picture& picture) {
  uint8_t* bytes = nullptr;
  const size_t size = WebPEncodeLosslessRGB(picture.pixels.data(), picture.width, picture.height,
                                            picture.width * 3, &bytes);
  return take(bytes, size);
}

std::vector<std::byte> encode_webp_lossy(const Picture& picture) {
  uint8_t* bytes = nullptr;
  const size_t size = WebPEncodeRGB(picture.pixels.data(), picture.width, picture.height,
                                    picture.width * 3, 80, &bytes);
  return take(bytes, size);
}

std::vector<std::byte> encode_webp_alpha(const Picture& picture, int alpha_step) {
  std::vector<uint8_t> rgba;
  for (int i = 0; i < picture.width * picture.height; ++i) {
    for (int c = 0; c < 3; ++c) rgba.push_back(picture.pixels[size_t(i * 3 + c)]);
    rgba.push_back(uint8_t(i / picture.width * alpha_step));
  }
  uint8_t* bytes = nullptr;
  const size_t size =
      WebPEncodeLosslessRGBA(rgba.data(), picture.width, picture.height, picture.width * 4, &bytes);
  return take(bytes, size);
}

std::vector<std::byte> webp_with_exif(const std::vector<std::byte>& webp, const Picture& picture,
                                      std::string_view exif) {
  constexpr uint8_t kHasExif = 0x08;
  return webp_file(extended_header(kHasExif, {picture.width, picture.height}) + first_chunk(webp) +
                   webp_chunk("EXIF", std::string(exif)));
}

std::vector<std::byte> webp_animation(const std::vector<std::byte>& frame, int x, int y,
                                      Size frame_size, Size canvas) {
  constexpr uint8_t kIsAnimation = 0x02;
  const std::string place = number(uint64_t(x / 2), 3, false) + number(uint64_t(y / 2), 3, false) +
                            number(uint64_t(frame_size.width - 1), 3, false) +
                            number(uint64_t(frame_size.height - 1), 3, false) +
                            number(100, 3, false) + '\0';
  return webp_file(extended_header(kIsAnimation, canvas) +
                   webp_chunk("ANIM", std::string(6, '\0')) +
                   webp_chunk("ANMF", place + first_chunk(frame)));
}

std::vector<std::byte> png_with_chunk(const std::vector<std::byte>& png, std::string_view type,
                                      std::string_view body) {
  constexpr size_t kEndBytes = 12;
  std::vector<std::byte> longer(png.begin(), png.end() - kEndBytes);
  const std::string content = std::string(type) + std::string(body);
  append(longer, number(body.size(), 4, true) + content + number(crc32(content), 4, true));
  longer.insert(longer.end(), png.end() - kEndBytes, png.end());
  return longer;
}

std::string tiff_orientation(int orientation, bool big_endian) {
  const auto u16 = [&](int value) { return number(uint64_t(value), 2, big_endian); };
  const auto u32 = [&](int value) { return number(uint64_t(value), 4, big_endian); };
  return (big_endian ? "MM" : "II") + u16(42) + u32(8) + u16(1) + u16(0x0112) + u16(3) + u32(1) +
         u16(orientation) + u16(0) + u32(0);
}

std::vector<std::byte> jpeg_with_orientation(std::vector<std::byte> jpeg, int orientation,
                                             bool big_endian) {
  const std::string block = std::string("Exif\0\0", 6) + tiff_orientation(orientation, big_endian);
  std::vector<std::byte> marker;
  append(marker, "\xff\xe1" + number(block.size() + 2, 2, true) + block);
  jpeg.insert(jpeg.begin() + 2, marker.begin(), marker.end());
  return jpeg;
}

}  // namespace yard::images::testing
