#include "images/picture.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "images/row_source_internal.h"

namespace yard::images {
namespace {

Picture gradient(int width, int height) {
  Picture picture{width, height, {}};
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      picture.pixels.push_back(uint8_t(255 * x / std::max(1, width - 1)));
      picture.pixels.push_back(uint8_t(255 * y / std::max(1, height - 1)));
      picture.pixels.push_back(uint8_t((x + y) % 7 * 10));
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
  EXPECT_EQ(a.width, b.width);
  EXPECT_EQ(a.height, b.height);
  EXPECT_EQ(a.pixels.size(), b.pixels.size());
  int largest = 0;
  for (size_t i = 0; i < std::min(a.pixels.size(), b.pixels.size()); ++i)
    largest = std::max(largest, std::abs(int(a.pixels[i]) - int(b.pixels[i])));
  return largest;
}

std::vector<std::byte> png_of(const Picture& picture) {
  return *encode_png(picture);
}
std::vector<std::byte> jpeg_of(const Picture& picture) {
  return *encode_jpeg(picture, 95);
}

Code decode_code(std::span<const std::byte> encoded, const DecodeOptions& options = {}) {
  const Result<Picture> picture = decode(encoded, options);
  EXPECT_FALSE(picture.has_value());
  return picture ? Code::kInternal : picture.error().code;
}

TEST(Decode, PngGivesBackTheSamePixels) {
  const Picture picture = gradient(37, 21);
  const Result<Picture> decoded = decode(png_of(picture), {});
  ASSERT_TRUE(decoded.has_value());
  EXPECT_EQ(largest_difference(*decoded, picture), 0);
}

TEST(Decode, JpegGivesBackNearlyTheSamePixels) {
  const Picture picture = solid(40, 24, 200, 30, 90);
  const Result<Picture> decoded = decode(jpeg_of(picture), {});
  ASSERT_TRUE(decoded.has_value());
  EXPECT_LE(largest_difference(*decoded, picture), 4);
}

TEST(Decode, EveryTruncatedPngIsCorrupt) {
  const std::vector<std::byte> encoded = png_of(gradient(19, 11));
  for (size_t size = 8; size < encoded.size(); ++size)
    EXPECT_EQ(decode_code(std::span(encoded).first(size)), Code::kCorrupt) << size;
}

TEST(Decode, EveryTruncatedJpegIsCorrupt) {
  const std::vector<std::byte> encoded = jpeg_of(gradient(48, 40));
  for (size_t size = 3; size < encoded.size(); ++size)
    EXPECT_EQ(decode_code(std::span(encoded).first(size)), Code::kCorrupt) << size;
}

TEST(Decode, EveryFlippedByteAfterThePngSignatureIsCorrupt) {
  const std::vector<std::byte> encoded = png_of(gradient(19, 11));
  for (size_t i = 8; i < encoded.size(); ++i) {
    std::vector<std::byte> damaged = encoded;
    damaged[i] ^= std::byte{0x40};
    // A damaged length or size can ask for too much before the checksum is reached.
    const Code code = decode_code(damaged);
    EXPECT_TRUE(code == Code::kCorrupt || code == Code::kExhausted) << i;
  }
}

TEST(Decode, DamagedJpegNeverCrashes) {
  const std::vector<std::byte> encoded = jpeg_of(gradient(48, 40));
  DecodeOptions options;
  options.pixel_count_max = 1 << 20;
  for (size_t i = 2; i < encoded.size(); ++i) {
    for (const int bit : {0, 3, 7}) {
      std::vector<std::byte> damaged = encoded;
      damaged[i] ^= std::byte(1 << bit);
      const Result<Picture> decoded = decode(damaged, options);
      if (decoded) {
        EXPECT_EQ(decoded->pixels.size(), size_t(decoded->width) * size_t(decoded->height) * 3);
      }
    }
  }
}

TEST(Decode, OtherBytesAreInvalidArgument) {
  EXPECT_EQ(decode_code({}), Code::kInvalidArgument);
  for (const char* text : {"x", "GIF89a................", "\x89PNG", "<svg></svg>"}) {
    EXPECT_EQ(decode_code(std::as_bytes(std::span(text, std::strlen(text)))),
              Code::kInvalidArgument);
  }
}

TEST(Decode, MorePixelsThanAllowedAreExhaustedWhateverTheFileHolds) {
  DecodeOptions options;
  options.pixel_count_max = 99;
  for (const auto& encoded : {png_of(gradient(10, 10)), jpeg_of(gradient(10, 10))}) {
    EXPECT_EQ(decode_code(encoded, options), Code::kExhausted);
    // The header alone decides: the pixels need not be there.
    options.pixel_count_max = 100;
    EXPECT_TRUE(decode(encoded, options).has_value());
    options.pixel_count_max = 99;
  }
}

TEST(Decode, JpegIsScaledDownOnlyAsFarAsTheShorterSideAllows) {
  const std::vector<std::byte> encoded = jpeg_of(gradient(160, 80));
  const auto width_at = [&](int shorter_side_min) {
    DecodeOptions options;
    options.shorter_side_min = shorter_side_min;
    return decode(encoded, options)->width;
  };
  EXPECT_EQ(width_at(0), 160);
  EXPECT_EQ(width_at(81), 160);
  EXPECT_EQ(width_at(41), 160);
  EXPECT_EQ(width_at(40), 80);
  EXPECT_EQ(width_at(20), 40);
  EXPECT_EQ(width_at(10), 20);
  EXPECT_EQ(width_at(1), 20);
}

// A JPEG with the orientation in an EXIF block of the given byte order, right after SOI.
std::vector<std::byte> with_orientation(std::vector<std::byte> jpeg, uint8_t orientation,
                                        bool big_endian) {
  std::string block("Exif\0\0", 6);
  block += big_endian ? std::string("MM\0\x2a\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0", 19)
                      : std::string("II\x2a\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0", 18);
  block += char(orientation);
  block += big_endian ? std::string("\0\0\0\0\0\0", 6) : std::string("\0\0\0\0\0\0\0", 7);
  std::string marker = "\xff\xe1";
  marker += char((block.size() + 2) >> 8);
  marker += char((block.size() + 2) & 0xff);
  marker += block;
  const auto bytes = std::as_bytes(std::span(marker));
  jpeg.insert(jpeg.begin() + 2, bytes.begin(), bytes.end());
  return jpeg;
}

TEST(Decode, JpegIsTurnedUprightUnlessAskedNotTo) {
  const std::vector<std::byte> plain = jpeg_of(gradient(32, 16));
  const Picture stored = *decode(plain, {});
  for (const bool big_endian : {false, true}) {
    for (uint8_t orientation = 1; orientation <= 8; ++orientation) {
      const auto encoded = with_orientation(plain, orientation, big_endian);
      EXPECT_EQ(largest_difference(*decode(encoded, {}), turn_upright(stored, orientation)), 0);
      DecodeOptions options;
      options.apply_orientation = false;
      EXPECT_EQ(largest_difference(*decode(encoded, options), stored), 0);
    }
  }
}

TEST(Orientation, SixIsAQuarterTurnClockwise) {
  // a b      d? no: the left column becomes the top row, read from below
  // c d  ->  e c a / f d b
  // e f
  Picture stored{2, 3, {}};
  for (const char c : {'a', 'b', 'c', 'd', 'e', 'f'})
    stored.pixels.insert(stored.pixels.end(), 3, uint8_t(c));
  const Picture upright = turn_upright(stored, 6);
  EXPECT_EQ(upright.width, 3);
  EXPECT_EQ(upright.height, 2);
  std::string seen;
  for (size_t i = 0; i < upright.pixels.size(); i += 3) seen += char(upright.pixels[i]);
  EXPECT_EQ(seen, "ecafdb");
}

TEST(Orientation, MalformedBlocksAreUpright) {
  for (const std::string& block :
       {std::string(), std::string("MM"), std::string("II\x2a\0\xff\xff\xff\xff", 8),
        std::string("II\x2a\0\x08\0\0\0\xff\xff", 10),
        std::string("II\x2a\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x09\0\0\0", 22)}) {
    EXPECT_EQ(exif_orientation(std::as_bytes(std::span(block))), 1);
  }
}

TEST(Resize, SameSizeIsTheSamePicture) {
  const Picture picture = gradient(13, 9);
  EXPECT_EQ(largest_difference(resize(picture, 13, 9), picture), 0);
}

TEST(Resize, HalvingMixesWithTriangleWeights) {
  Picture row{4, 1, {}};
  for (const uint8_t level : {0, 80, 160, 240}) row.pixels.insert(row.pixels.end(), 3, level);
  // Pixel 0 of 2: centre 1, support 2: weights 3/4, 3/4, 1/4 of pixels 0, 1, 2, over 7/4.
  const Picture half = resize(row, 2, 1);
  EXPECT_EQ(half.pixels[0], uint8_t(std::lround((0 * 3 + 80 * 3 + 160 * 1) / 7.0)));
  EXPECT_EQ(half.pixels[3], uint8_t(std::lround((80 * 1 + 160 * 3 + 240 * 3) / 7.0)));
}

TEST(Resize, SolidColourStaysAtAnySize) {
  const Picture picture = solid(31, 17, 255, 0, 128);
  for (const auto& [width, height] :
       {std::pair{1, 1}, std::pair{7, 40}, std::pair{62, 34}, std::pair{1, 200}}) {
    EXPECT_EQ(largest_difference(resize(picture, width, height), solid(width, height, 255, 0, 128)),
              0);
  }
}

TEST(Crop, EqualsResizeThenCutThenNormaliseWithinOneLevel) {
  for (const auto& [width, height] : {std::pair{50, 33}, std::pair{33, 50}, std::pair{9, 9}}) {
    const Picture picture = gradient(width, height);
    const auto [new_width, new_height] = size_with_shorter_side(width, height, 16);
    const Picture resized = resize(picture, int(new_width), int(new_height));
    for (const double position : {0.0, 0.5, 1.0}) {
      Crop crop{16, position, position, false};
      std::vector<float> out(3 * 16 * 16);
      crop_into(picture, crop, out);
      const size_t left = size_t(std::nearbyint(position * double(new_width - 16)));
      const size_t top = size_t(std::nearbyint(position * double(new_height - 16)));
      for (size_t c = 0; c < 3; ++c) {
        for (size_t y = 0; y < 16; ++y) {
          for (size_t x = 0; x < 16; ++x) {
            const size_t from = ((top + y) * size_t(new_width) + left + x) * 3 + c;
            EXPECT_NEAR(out[(c * 16 + y) * 16 + x], resized.pixels[from] / 127.5 - 1, 0.51 / 127.5);
          }
        }
      }
    }
  }
}

TEST(Crop, FlipMirrorsLeftToRight) {
  const Picture picture = gradient(24, 24);
  std::vector<float> plain(3 * 8 * 8);
  std::vector<float> flipped(plain.size());
  crop_into(picture, {8, 0.5, 0.5, false}, plain);
  crop_into(picture, {8, 0.5, 0.5, true}, flipped);
  for (size_t row = 0; row < 24; ++row) {
    for (size_t x = 0; x < 8; ++x) EXPECT_EQ(plain[row * 8 + x], flipped[row * 8 + 7 - x]);
  }
}

TEST(Crop, ALineOnePixelWideNeedsNoGiantPicture) {
  const Picture line = solid(1, 60000, 10, 20, 30);
  std::vector<float> out(3 * 64 * 64);
  crop_into(line, {64, 0.5, 1.0, false}, out);
  EXPECT_FLOAT_EQ(out[0], 10 / 127.5F - 1);
}

TEST(Floats, RoundTripThroughCropIsExact) {
  const Picture picture = gradient(16, 16);
  std::vector<float> out(3 * 16 * 16);
  crop_into(picture, {16, 0.5, 0.5, false}, out);
  EXPECT_EQ(largest_difference(from_floats(out, 16, 16), picture), 0);
}

TEST(Floats, OutOfRangeIsClampedAndNotANumberIsBlack) {
  const std::vector<float> wild = {9.0F, -9.0F, std::numeric_limits<float>::quiet_NaN()};
  const Picture picture = from_floats(wild, 1, 1);
  EXPECT_EQ(picture.pixels, (std::vector<uint8_t>{255, 0, 0}));
}

TEST(Grid, PlacesPicturesRowByRowWithWhiteBetween) {
  const std::vector<Picture> pictures = {solid(2, 2, 1, 1, 1), solid(2, 2, 2, 2, 2),
                                         solid(2, 2, 3, 3, 3)};
  const Picture canvas = grid(pictures, 2, 1);
  EXPECT_EQ(canvas.width, 5);
  EXPECT_EQ(canvas.height, 5);
  const auto level = [&](size_t x, size_t y) { return canvas.pixels[(y * 5 + x) * 3]; };
  EXPECT_EQ(level(0, 0), 1);
  EXPECT_EQ(level(2, 0), 255);
  EXPECT_EQ(level(3, 1), 2);
  EXPECT_EQ(level(1, 4), 3);
  EXPECT_EQ(level(4, 4), 255);
}

TEST(Encode, SidesTooLongForTheFormatAreInvalidArgument) {
  const Picture wide = solid(70000, 1, 0, 0, 0);
  const auto jpeg = encode_jpeg(wide, 90);
  ASSERT_FALSE(jpeg.has_value());
  EXPECT_EQ(jpeg.error().code, Code::kInvalidArgument);
  EXPECT_TRUE(encode_png(wide).has_value());
}

}  // namespace
}  // namespace yard::images
