#include "images/picture_reader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <string>

#include "images/row_source_internal.h"
#include "images/testing/sample_pictures.h"

namespace yard::images {
namespace {

using namespace testing;
using Bytes = std::vector<std::byte>;

constexpr RenderOptions kLevels = {
    .layout = Layout::kInterleaved, .type = PixelType::kUint8, .dct_scaling = false};

Result<Picture> render(PictureReader& reader, std::span<const std::byte> encoded,
                       const std::function<View(Size)>& view_of,
                       const RenderOptions& options = kLevels) {
  YARD_ASSIGN(const PictureInfo info, reader.open(encoded));
  const View view = view_of(info.size);
  Picture picture{view.width, view.height,
                  std::vector<uint8_t>(size_t(view.width * view.height) * 3)};
  YARD_TRY(reader.render(view, options, std::as_writable_bytes(std::span(picture.pixels))));
  return picture;
}

Result<Picture> render(std::span<const std::byte> encoded, const std::function<View(Size)>& view_of,
                       const RenderOptions& options = kLevels) {
  PictureReader reader;
  return render(reader, encoded, view_of, options);
}

std::function<View(Size)> covering(int width, int height, double x = 0.5, double y = 0.5) {
  return [=](Size picture) { return covering_view(picture, {width, height}, x, y); };
}
View whole(Size picture) {
  return stretched_view(picture, picture);
}

Code code_of(const Result<Picture>& picture) {
  return picture ? Code::kInternal : picture.error().code;
}

// The part of a decoded picture, cut out at its own size.
Picture cut(const Picture& picture, int left, int top, int width, int height) {
  Picture part{width, height, {}};
  for (int y = 0; y < height; ++y) {
    const auto row = picture.pixels.begin() + ((top + y) * picture.width + left) * 3;
    part.pixels.insert(part.pixels.end(), row, row + width * 3);
  }
  return part;
}

View part_at_its_size(int left, int top, int width, int height) {
  return {left, top, width, height, width, height, 0, 0, width, height, false};
}

std::vector<JpegKind> jpeg_kinds() {
  std::vector<JpegKind> kinds;
  for (const bool progressive : {false, true}) {
    kinds.push_back({1, 1, progressive, 3});
    kinds.push_back({2, 1, progressive, 3});
    kinds.push_back({2, 2, progressive, 3});
    kinds.push_back({1, 2, progressive, 3});
    kinds.push_back({4, 1, progressive, 3});
    kinds.push_back({1, 1, progressive, 1});
    kinds.push_back({1, 1, progressive, 4});
    kinds.push_back({2, 2, progressive, 3, false, true});
  }
  kinds.push_back({2, 1, false, 3, true});
  return kinds;
}

TEST(PictureReader, EveryPartOfAJpegIsThatPartOfTheWholePicture) {
  const Picture picture = sample_picture(133, 97);
  PictureReader reader;
  uint64_t draw = 0;
  for (const JpegKind& kind : jpeg_kinds()) {
    const Bytes encoded = encode_jpeg_kind(picture, kind);
    const Picture decoded = *decode(encoded, {});
    for (int i = 0; i < 40; ++i) {
      const int left = int(++draw * 37 % 120), top = int(draw * 53 % 90);
      const int width = 1 + int(draw * 71 % uint64_t(133 - left));
      const int height = 1 + int(draw * 29 % uint64_t(97 - top));
      const auto part =
          render(reader, encoded, [&](Size) { return part_at_its_size(left, top, width, height); });
      ASSERT_TRUE(part.has_value()) << part.error().message;
      ASSERT_EQ(largest_difference(*part, cut(decoded, left, top, width, height)), 0)
          << kind.horizontal_sampling << kind.vertical_sampling << kind.progressive << " " << left
          << "," << top << " " << width << "x" << height;
    }
  }
}

TEST(PictureReader, EveryPartAtASmallerScaleIsThatPartOfTheWholePictureAtThatScale) {
  const Picture picture = sample_picture(264, 200);
  RenderOptions options = kLevels;
  options.dct_scaling = true;
  for (const JpegKind& kind : jpeg_kinds()) {
    const Bytes encoded = encode_jpeg_kind(picture, kind);
    for (const int denominator : {2, 4, 8}) {
      const Picture small = *decode(encoded, {.shorter_side_min = 200 / denominator});
      ASSERT_EQ(small.height, 200 / denominator);
      const int left = 5, top = 3, width = 11, height = 9;
      const auto part = render(
          encoded,
          [&](Size) {
            const int d = denominator;
            return View{left * d, top * d, width * d, height * d, width, height,
                        0,        0,       width,     height,     false};
          },
          options);
      ASSERT_EQ(largest_difference(*part, cut(small, left, top, width, height)), 0)
          << denominator << " " << kind.horizontal_sampling << kind.vertical_sampling;
    }
  }
}

TEST(PictureReader, EqualsDecodeThenResizeInEveryFormat) {
  const Picture picture = sample_picture(90, 70);
  for (const Bytes& encoded :
       {*encode_png(picture), encode_webp_lossless(picture), *encode_jpeg(picture, 95)}) {
    const Picture decoded = *decode(encoded, {});
    const auto resized = render(encoded, [](Size size) { return stretched_view(size, {41, 23}); });
    EXPECT_EQ(largest_difference(*resized, resize(decoded, 41, 23)), 0);
  }
}

TEST(PictureReader, TurnedPicturesAreTheViewOfTheUprightOne) {
  const Bytes plain = *encode_jpeg(sample_picture(80, 48), 95);
  const Picture stored = *decode(plain, {});
  for (int orientation = 1; orientation <= 8; ++orientation) {
    const Bytes encoded = jpeg_with_orientation(plain, orientation, orientation % 2 == 0);
    const Bytes upright = *encode_png(turn_upright(stored, orientation));
    for (const Layout layout : {Layout::kInterleaved, Layout::kPlanar}) {
      RenderOptions options = kLevels;
      options.layout = layout;
      for (const auto& view : {covering(31, 17, 0.2, 0.9), covering(20, 40, 0.8, 0.1)}) {
        const auto got = render(encoded, view, options);
        EXPECT_LE(largest_difference(*got, *render(upright, view, options)), 1) << orientation;
      }
    }
    PictureReader as_stored({.apply_orientation = false});
    EXPECT_EQ(largest_difference(*render(as_stored, encoded, whole), stored), 0);
  }
}

TEST(PictureReader, OrientationIsFoundWhereverPngAndWebpKeepIt) {
  const Picture picture = sample_picture(12, 8);
  const std::string tiff = tiff_orientation(6, true);
  const Bytes webp = encode_webp_lossless(picture);
  const std::string with_signature = std::string("Exif\0\0", 6) + tiff;
  for (const Bytes& encoded :
       {png_with_chunk(*encode_png(picture), "eXIf", tiff), webp_with_exif(webp, picture, tiff),
        webp_with_exif(webp, picture, with_signature)}) {
    PictureReader reader;
    const auto info = reader.open(encoded);
    ASSERT_TRUE(info.has_value()) << info.error().message;
    EXPECT_EQ(info->orientation, 6);
    EXPECT_EQ(info->size.width, 8);
    EXPECT_EQ(largest_difference(*decode(encoded, {}), turn_upright(picture, 6)), 0);
  }
}

TEST(PictureReader, FlipMirrorsLeftToRight) {
  const Bytes encoded = *encode_png(sample_picture(50, 40));
  const Picture plain = *render(encoded, covering(16, 16));
  const Picture flipped = *render(encoded, [](Size size) {
    return covering_view(size, {16, 16}, 0.5, 0.5, true);
  });
  EXPECT_LE(largest_difference(flipped, turn_upright(plain, 2)), 1);
}

TEST(PictureReader, ScaledDecodingIsOnlyUsedWhereItLeavesTheResolution) {
  const Bytes encoded = *encode_jpeg(sample_picture(256, 128), 90);
  RenderOptions scaled = kLevels;
  scaled.dct_scaling = true;
  // 128 rows become 65: at 1/2 they would be 64.
  const auto just_above = covering(65, 65);
  EXPECT_EQ(largest_difference(*render(encoded, just_above, scaled), *render(encoded, just_above)),
            0);
  const auto half = covering(64, 64);
  EXPECT_GT(largest_difference(*render(encoded, half, scaled), *render(encoded, half)), 0);
}

TEST(PictureReader, ScaledDecodingKeepsPlainColoursAndPlaces) {
  Picture halves = solid(320, 240, 250, 10, 10);
  for (int y = 0; y < 240; ++y) {
    for (int x = 160; x < 320; ++x) halves.pixels[size_t((y * 320 + x) * 3)] = 10;
  }
  RenderOptions scaled = kLevels;
  scaled.dct_scaling = true;
  const Bytes encoded = encode_jpeg_kind(halves, {1, 1, false, 3});
  const Picture small = *render(
      encoded,
      [](Size size) {
        return stretched_view(size, {33, 25});
      },
      scaled);
  for (int y = 0; y < 25; ++y) {
    const auto red = [&](int x) { return int(small.pixels[size_t((y * 33 + x) * 3)]); };
    EXPECT_NEAR(red(0), 250, 6);
    EXPECT_NEAR(red(32), 10, 6);
    EXPECT_NEAR(red(16), 130, 25);  // the edge runs through its middle
  }
}

TEST(PictureReader, TransparentPixelsShowTheBackground) {
  const Picture picture = solid(10, 10, 200, 100, 0);
  PictureReader reader({.background = {0, 50, 100}});
  const Picture shown = *render(reader, encode_webp_alpha(picture, 28), whole);
  for (int y = 0; y < 10; ++y) {
    const double alpha = y * 28 / 255.0;
    EXPECT_NEAR(shown.pixels[size_t(y) * 30], 200 * alpha, 1);
    EXPECT_NEAR(shown.pixels[size_t(y) * 30 + 1], 100 * alpha + 50 * (1 - alpha), 1);
    EXPECT_NEAR(shown.pixels[size_t(y) * 30 + 2], 100 * (1 - alpha), 1);
  }
}

TEST(PictureReader, AnAnimationsFirstFrameLiesOnItsCanvas) {
  const Picture frame = sample_picture(16, 12);
  const Bytes encoded = webp_animation(encode_webp_lossless(frame), 4, 6, {16, 12}, {30, 20});
  PictureReader reader;  // whose memory holds another picture's pixels
  ASSERT_TRUE(render(reader, encode_webp_lossless(sample_picture(30, 20)), whole).has_value());
  const Picture shown = *render(reader, encoded, whole);
  ASSERT_EQ(shown.width, 30);
  EXPECT_EQ(largest_difference(cut(shown, 4, 6, 16, 12), frame), 0);
  EXPECT_EQ(largest_difference(cut(shown, 0, 0, 30, 6), solid(30, 6, 255, 255, 255)), 0);
  EXPECT_EQ(largest_difference(cut(shown, 0, 18, 30, 2), solid(30, 2, 255, 255, 255)), 0);
}

TEST(PictureReader, NothingIsWrittenBesideTheOutput) {
  const Bytes encoded = *encode_jpeg(sample_picture(70, 50), 90);
  const Bytes turned = jpeg_with_orientation(encoded, 6, true);
  constexpr size_t kGuardBytes = 64;
  for (const PixelType type : {PixelType::kUint8, PixelType::kBfloat16, PixelType::kFloat32}) {
    for (const Layout layout : {Layout::kPlanar, Layout::kInterleaved}) {
      for (const Bytes& picture : {encoded, turned}) {
        const size_t size = 13 * 9 * 3 * size_bytes(type);
        std::vector<std::byte> memory(size + 2 * kGuardBytes, std::byte{0xa5});
        PictureReader reader;
        const PictureInfo info = *reader.open(picture);
        ASSERT_TRUE(reader
                        .render(covering_view(info.size, {13, 9}), {.layout = layout, .type = type},
                                std::span(memory).subspan(kGuardBytes, size))
                        .has_value());
        for (size_t i = 0; i < kGuardBytes; ++i) {
          ASSERT_EQ(memory[i], std::byte{0xa5});
          ASSERT_EQ(memory[kGuardBytes + size + i], std::byte{0xa5});
        }
      }
    }
  }
}

TEST(PictureReader, MeanAndStdNormaliseEachChannel) {
  const Bytes encoded = *encode_png(solid(8, 8, 255, 51, 0));
  std::vector<float> out(3);
  PictureReader reader;
  const PictureInfo info = *reader.open(encoded);
  ASSERT_TRUE(reader
                  .render(covering_view(info.size, {1, 1}),
                          {.mean = {0.5F, 0.2F, 0.1F}, .std = {0.25F, 0.5F, 0.2F}},
                          std::as_writable_bytes(std::span(out)))
                  .has_value());
  EXPECT_FLOAT_EQ(out[0], 2.0F);
  EXPECT_NEAR(out[1], 0.0F, 1e-6);
  EXPECT_FLOAT_EQ(out[2], -0.5F);
}

TEST(PictureReader, GoesOnAfterABadPicture) {
  const Picture picture = sample_picture(40, 30);
  PictureReader reader;
  for (const Bytes& encoded :
       {*encode_jpeg(picture, 90), encode_jpeg_kind(picture, {2, 2, true, 3}), *encode_png(picture),
        encode_webp_lossless(picture)}) {
    const Picture want = *decode(encoded, {});
    for (size_t size : {size_t{5}, size_t{60}, encoded.size() / 2, encoded.size() - 3}) {
      EXPECT_FALSE(render(reader, std::span(encoded).first(size), whole).has_value());
      EXPECT_EQ(largest_difference(*render(reader, encoded, whole), want), 0);
    }
    // Opened and left, by another picture or for good.
    ASSERT_TRUE(reader.open(encoded).has_value());
  }
}

TEST(PictureReader, EveryTruncatedPictureIsCorruptWhateverPartIsWanted) {
  const Picture picture = sample_picture(48, 64);
  const auto top_corner = [](Size) { return part_at_its_size(0, 0, 8, 8); };
  PictureReader reader;
  for (const Bytes& encoded :
       {encode_jpeg_kind(picture, {2, 2, false, 3}), encode_jpeg_kind(picture, {2, 1, true, 3}),
        *encode_png(picture), encode_webp_lossless(picture), encode_webp_lossy(picture)}) {
    for (size_t size = 12; size < encoded.size(); size += size < 700 ? 1 : 31) {
      const auto cut_short = std::span(encoded).first(size);
      EXPECT_EQ(code_of(render(reader, cut_short, top_corner)), Code::kCorrupt) << size;
      EXPECT_EQ(code_of(render(reader, cut_short, whole)), Code::kCorrupt) << size;
    }
    EXPECT_TRUE(render(reader, encoded, top_corner).has_value());
  }
}

TEST(PictureReader, BombsAreExhaustedBeforeAnythingIsAllocated) {
  const Picture picture = sample_picture(10, 10);
  for (const Bytes& encoded :
       {*encode_jpeg(picture, 90), *encode_png(picture), encode_webp_lossless(picture),
        webp_animation(encode_webp_lossless(picture), 0, 0, {10, 10}, {10, 10})}) {
    PictureReader strict({.pixel_count_max = 99});
    const auto refused = strict.open(encoded);
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().code, Code::kExhausted);
    PictureReader exact({.pixel_count_max = 100});
    EXPECT_TRUE(exact.open(encoded).has_value());
  }
  // A file of a few bytes that promises an animation of 2^48 pixels.
  const Bytes giant =
      webp_animation(encode_webp_lossless(picture), 0, 0, {10, 10}, {1 << 24, 1 << 24});
  const auto refused = PictureReader().open(giant);
  ASSERT_FALSE(refused.has_value());
}

TEST(PictureReader, AFrameOutsideItsCanvasIsCorrupt) {
  const Picture frame = sample_picture(16, 12);
  const Bytes webp = encode_webp_lossless(frame);
  for (const auto& [x, y] : {std::pair{16, 0}, std::pair{0, 10}}) {
    const auto shown = render(webp_animation(webp, x, y, {16, 12}, {30, 20}), whole);
    EXPECT_EQ(code_of(shown), Code::kCorrupt);
  }
  // The chunk says a size that would fit, its picture is larger than the canvas.
  EXPECT_EQ(code_of(render(webp_animation(webp, 0, 0, {8, 8}, {14, 10}), whole)), Code::kCorrupt);
}

TEST(PictureReader, FlippedBytesNeverCrashAndNeverWriteOutside) {
  const Picture picture = sample_picture(40, 32);
  PictureReader reader({.pixel_count_max = 1 << 16});
  for (const Bytes& encoded :
       {encode_jpeg_kind(picture, {2, 2, false, 3}), encode_jpeg_kind(picture, {2, 2, true, 3}),
        encode_jpeg_kind(picture, {1, 1, false, 4}), *encode_png(picture),
        encode_webp_lossless(picture), encode_webp_lossy(picture), encode_webp_alpha(picture, 8),
        webp_animation(encode_webp_lossless(picture), 2, 2, {40, 32}, {60, 50})}) {
    for (size_t i = 0; i < encoded.size(); i += i < 300 ? 1 : 13) {
      Bytes damaged = encoded;
      damaged[i] ^= std::byte(1 << i % 8);
      RenderOptions options = kLevels;
      options.dct_scaling = i % 2 == 0;
      (void)render(reader, damaged, covering(16, 16, 0.1, 0.9), options);
    }
  }
}

TEST(PictureReader, ASequentialJpegWithZeroedScanLimitsIsRead) {
  Bytes encoded = *encode_jpeg(sample_picture(24, 24), 90);
  const Picture want = *decode(encoded, {});
  // SOS: marker, length, count, 2 bytes per component, then Ss, Se, Ah/Al.
  for (size_t i = 0; i + 1 < encoded.size(); ++i) {
    if (encoded[i] == std::byte{0xff} && encoded[i + 1] == std::byte{0xda})
      encoded[i + 5 + 6 + 1] = std::byte{0};
  }
  const auto shown = render(encoded, whole);
  ASSERT_TRUE(shown.has_value()) << shown.error().message;
  EXPECT_EQ(largest_difference(*shown, want), 0);
}

TEST(PictureReader, TwelveBitJpegsAreInvalidArgument) {
  Bytes encoded = *encode_jpeg(sample_picture(24, 24), 90);
  for (size_t i = 0; i + 4 < encoded.size(); ++i) {
    if (encoded[i] == std::byte{0xff} && encoded[i + 1] == std::byte{0xc0})
      encoded[i + 4] = std::byte{12};
  }
  EXPECT_EQ(code_of(render(encoded, whole)), Code::kInvalidArgument);
}

TEST(PictureReader, MoreScansThanAnyEncoderWritesAreCorrupt) {
  const Bytes encoded = encode_jpeg_kind(sample_picture(24, 24), {1, 1, false, 3, true});
  const auto find_scan = [&](size_t from) {
    constexpr std::byte kMarker[] = {std::byte{0xff}, std::byte{0xda}};
    return size_t(
        std::search(encoded.begin() + int64_t(from), encoded.end(), kMarker, kMarker + 2) -
        encoded.begin());
  };
  const size_t first = find_scan(0), second = find_scan(first + 2);
  const auto with_scans = [&](int count) {
    Bytes many(encoded.begin(), encoded.begin() + int64_t(first));
    for (int i = 0; i < count; ++i)
      many.insert(many.end(), encoded.begin() + int64_t(first), encoded.begin() + int64_t(second));
    many.insert(many.end(), encoded.begin() + int64_t(second), encoded.end());
    return many;
  };
  EXPECT_TRUE(render(with_scans(100), whole).has_value());
  EXPECT_EQ(code_of(render(with_scans(1000), whole)), Code::kCorrupt);
}

TEST(PictureReader, FormatsThatAreNotReadAreNamed) {
  for (const auto& [bytes, name] : {std::pair<std::string, std::string>{"GIF89a......", "GIF"},
                                    {std::string("\0\0\0\x1c", 4) + "ftypavif....", "AVIF"},
                                    {"<!DOCTYPE html>", "web page"},
                                    {"", "empty"}}) {
    const auto info = PictureReader().open(std::as_bytes(std::span(bytes)));
    ASSERT_FALSE(info.has_value());
    EXPECT_EQ(info.error().code, Code::kInvalidArgument);
    EXPECT_NE(info.error().message.find(name), std::string::npos) << info.error().message;
  }
}

TEST(PictureReader, ReductionsByHundredsStayTrueToTheColour) {
  // Very many taps: their rounding must not add up.
  const Picture picture = solid(3000, 1500, 255, 1, 128);
  const auto small = render(*encode_png(picture), covering(3, 3));
  EXPECT_EQ(largest_difference(*small, solid(3, 3, 255, 1, 128)), 0);
  for (const int size : {64, 100, 200, 500}) {
    const auto shown = render(*encode_png(solid(1000, 1000, 255, 1, 128)), covering(size, size));
    EXPECT_EQ(largest_difference(*shown, solid(size, size, 255, 1, 128)), 0) << size;
  }
}

}  // namespace
}  // namespace yard::images
