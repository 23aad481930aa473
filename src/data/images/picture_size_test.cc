#include "images/picture_size.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "images/picture_reader.h"
#include "images/testing/sample_pictures.h"

namespace yard::images {
namespace {

using namespace testing;
using Bytes = std::vector<std::byte>;

// Wider than high, so that a turn shows.
const Picture kPicture = sample_picture(37, 21);

Bytes jpeg_of(const JpegKind& kind) {
  return encode_jpeg_kind(kPicture, kind);
}

// A segment right after the start of the file, such as a colour profile.
Bytes with_segment(Bytes jpeg, uint8_t marker, size_t content_bytes) {
  Bytes segment = {std::byte{0xff}, std::byte{marker}, std::byte((content_bytes + 2) >> 8),
                   std::byte((content_bytes + 2) & 0xff)};
  segment.resize(4 + content_bytes, std::byte{0xff});
  jpeg.insert(jpeg.begin() + 2, segment.begin(), segment.end());
  return jpeg;
}

std::vector<Bytes> files() {
  std::vector<Bytes> files = {
      *encode_png(kPicture),          *encode_jpeg(kPicture, 90),  jpeg_of({1, 1, true, 3}),
      jpeg_of({2, 2, false, 1}),      jpeg_of({1, 1, false, 4}),   jpeg_of({.arithmetic = true}),
      encode_webp_lossless(kPicture), encode_webp_lossy(kPicture), encode_webp_alpha(kPicture, 9)};
  for (int orientation = 1; orientation <= 8; ++orientation) {
    const std::string tiff = tiff_orientation(orientation, orientation % 2 == 0);
    files.push_back(jpeg_with_orientation(files[1], orientation, orientation % 3 == 0));
    files.push_back(with_segment(files.back(), 0xe2, 65'000));
    files.push_back(png_with_chunk(files[0], "eXIf", tiff));
    files.push_back(webp_with_exif(files[6], kPicture, tiff));
    files.push_back(webp_with_exif(files[6], kPicture, std::string("Exif\0\0", 6) + tiff));
  }
  return files;
}

std::string text_of(const std::optional<Size>& size) {
  return size ? std::to_string(size->width) + " x " + std::to_string(size->height) : "none";
}

std::string size_by_reader(const Bytes& file) {
  PictureReader reader;
  const auto info = reader.open(file);
  return info ? text_of(info->size) : "none";
}

TEST(PictureSize, IsTheReadersForEveryKindOfFileAndOrientation) {
  size_t turned_count = 0;
  for (const Bytes& file : files()) {
    ASSERT_NE(size_by_reader(file), "none");
    EXPECT_EQ(text_of(picture_size(file)), size_by_reader(file));
    if (picture_size(file) && picture_size(file)->width == 21) ++turned_count;
  }
  EXPECT_EQ(turned_count, 4U * 5U);
}

TEST(PictureSize, IsTheSameHoweverTheBytesCome) {
  for (const Bytes& file : files()) {
    for (const size_t piece_bytes : {size_t{1}, size_t{7}, size_t{64}, size_t{4096}}) {
      PictureSizeFinder finder;
      for (size_t at = 0; at < file.size(); at += piece_bytes)
        finder.take(std::span(file).subspan(at, std::min(piece_bytes, file.size() - at)));
      EXPECT_EQ(text_of(finder.size()), text_of(picture_size(file))) << piece_bytes;
    }
  }
}

// Orientation may follow: of a beginning nothing is settled that the rest could change.
TEST(PictureSize, OfABeginningIsSettledOnlyWhenItIsThatOfTheFile) {
  for (const Bytes& file : files()) {
    for (size_t size = 0; size < file.size(); size += 1 + size / 50) {
      PictureSizeFinder finder;
      finder.take(std::span(file).first(size));
      if (finder.is_settled()) {
        EXPECT_EQ(text_of(finder.size()), text_of(picture_size(file))) << size;
      }
    }
  }
}

TEST(PictureSize, OfAJpegIsSettledAtItsFirstScan) {
  const Bytes file = jpeg_with_orientation(*encode_jpeg(sample_picture(300, 200), 95), 6, false);
  PictureSizeFinder finder;
  finder.take(std::span(file).first(1024));
  EXPECT_TRUE(finder.is_settled());
  EXPECT_EQ(text_of(finder.size()), "200 x 300");
}

TEST(PictureSize, IsNotInventedForWhatTheReaderRefuses) {
  Bytes twelve_bits = *encode_jpeg(kPicture, 90);
  const Bytes marker = {std::byte{0xff}, std::byte{0xc0}};
  const auto frame =
      std::search(twelve_bits.begin(), twelve_bits.end(), marker.begin(), marker.end());
  ASSERT_NE(frame, twelve_bits.end());
  Bytes lossless = twelve_bits, no_height = twelve_bits;
  const auto at = frame - twelve_bits.begin();
  twelve_bits[size_t(at) + 4] = std::byte{12};
  lossless[size_t(at) + 1] = std::byte{0xc3};
  no_height[size_t(at) + 5] = no_height[size_t(at) + 6] = std::byte{0};
  Bytes huge = *encode_png(kPicture);
  for (const size_t side : {16, 20}) huge[side + 1] = std::byte{0x0f};
  const std::string text = "GIF89a a picture of another kind";
  Bytes gif(text.size());
  std::memcpy(gif.data(), text.data(), text.size());
  for (const Bytes& file : {twelve_bits, lossless, no_height, huge, gif, Bytes{}}) {
    EXPECT_EQ(size_by_reader(file), "none");
    EXPECT_EQ(text_of(picture_size(file)), "none");
  }
}

TEST(PictureSize, OfNoTruncatedFileIsAnotherOne) {
  for (const Bytes& file : files()) {
    for (size_t size = 0; size < file.size(); size += 1 + size / 50) {
      const Bytes part(file.begin(), file.begin() + std::ptrdiff_t(size));
      const auto found = picture_size(part);
      if (found && size_by_reader(part) != "none") {
        EXPECT_EQ(text_of(found), size_by_reader(part));
      }
    }
  }
}

}  // namespace
}  // namespace yard::images
