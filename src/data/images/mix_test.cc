// Every vector width that this CPU has, against plain loops.
#include "images/mix_internal.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "base/random.h"
#include "base/testing/vector_targets.h"
#include "images/row_source_internal.h"

namespace yard::images {
namespace {

constexpr size_t kPadding = size_t(kRowPadding);

std::vector<uint8_t> noise(size_t size, uint64_t seed) {
  std::vector<uint8_t> bytes(size + kPadding);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = uint8_t(random_u64(seed, 0, i));
  return bytes;
}

struct Rows {
  std::vector<std::vector<uint8_t>> bytes;
  std::vector<const uint8_t*> pointers;
  explicit Rows(size_t row_count, size_t size) {
    for (size_t t = 0; t < row_count; ++t) bytes.push_back(noise(size, t));
    for (const auto& row : bytes) pointers.push_back(row.data());
  }
};

TEST(Mix, RowsAreWeightedSums) {
  const size_t count = 93;
  const Rows rows(21, count);
  std::vector<float> weights;
  for (size_t t = 0; t < 21; ++t) weights.push_back(float(t) / 210);
  for_each_vector_target([&] {
    std::vector<float> out(count + kPadding);
    mix_rows(rows.pointers, weights.data(), count, out.data());
    for (size_t i = 0; i < count; ++i) {
      double want = 0;
      for (size_t t = 0; t < 21; ++t) want += double(weights[t]) * rows.bytes[t][i];
      ASSERT_NEAR(out[i], want, 1e-3) << i;
    }
  });
}

TEST(Mix, FewRowsAreWeightedSumsWithinAUnitEach) {
  const size_t count = 131;
  const std::vector<int16_t> weights = {-1200, 9000, 9784, -1200};  // of a bicubic filter
  const Rows rows(weights.size(), count);
  for_each_vector_target([&] {
    std::vector<float> out(count + kPadding);
    mix_few_rows(rows.pointers, weights.data(), count, out.data());
    for (size_t i = 0; i < count; ++i) {
      double want = 0;
      for (size_t t = 0; t < weights.size(); ++t) want += weights[t] / 16384.0 * rows.bytes[t][i];
      ASSERT_NEAR(double(out[i] * kFewRowsUnit), want, 4 * 0.5 / 64) << i;
    }
  });
}

TEST(Mix, OneRowOfFullWeightComesThroughExactly) {
  const Rows rows(1, 256);
  const int16_t one = 1 << 14;
  for_each_vector_target([&] {
    std::vector<float> out(256 + kPadding);
    mix_few_rows(rows.pointers, &one, 256, out.data());
    for (size_t i = 0; i < 256; ++i) ASSERT_EQ(out[i] * kFewRowsUnit, float(rows.bytes[0][i]));
  });
}

TEST(Mix, ColumnsAreWeightedSumsForEveryNumberOfTaps) {
  for (const size_t stride : {2UL, 4UL, 6UL, 8UL, 10UL, 34UL}) {
    const std::vector<int32_t> first = {0, 5, 2, 9};
    std::vector<float> row((9 + stride) * 4 + kPadding);
    for (size_t i = 0; i < row.size(); ++i) row[i] = float(random_u64(1, 2, i) % 1000);
    std::vector<float> weights;
    for (size_t i = 0; i < first.size() * stride; ++i)
      weights.insert(weights.end(), 4, float(random_u64(3, 4, i) % 100) / 100);
    for_each_vector_target([&] {
      std::vector<float> out(first.size() * 4 + kPadding);
      mix_columns(row.data(), first, weights.data(), stride, out.data());
      for (size_t i = 0; i < first.size() * 4; ++i) {
        double want = 0;
        for (size_t t = 0; t < stride; ++t)
          want += double(weights[(i / 4 * stride + t) * 4]) *
                  double(row[(size_t(first[i / 4]) + t) * 4 + i % 4]);
        ASSERT_NEAR(out[i], want, 1e-4 * want + 1e-3) << stride << " " << i;
      }
    });
  }
}

uint16_t bfloat16_of(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// Levels in and out of range, and halves.
std::vector<float> levels(size_t count) {
  std::vector<float> row(count * 4 + kPadding);
  for (size_t i = 0; i < row.size(); ++i) row[i] = float(random_u64(5, 6, i) % 1200) / 4 - 20;
  return row;
}

template <typename T, typename Convert>
void expect_writers(Convert convert) {
  const Scaling scaling = {.unit = 0.5F, .factor = {2.0F, 0.5F, 1.0F}, .bias = {0.0F, 3.0F, -1.0F}};
  for (const size_t count : {1UL, 3UL, 15UL, 16UL, 17UL, 64UL, 77UL}) {
    const std::vector<float> row = levels(count);
    for_each_vector_target([&] {
      const T guard = T(77);
      std::vector<T> planar(count * 3 + 1, guard), interleaved(count * 3 + 1, guard);
      T* p = planar.data();
      write_planar(row.data(), count, scaling, p, p + count, p + 2 * count);
      write_interleaved(row.data(), count, scaling, interleaved.data());
      EXPECT_EQ(planar.back(), guard);
      EXPECT_EQ(interleaved.back(), guard);
      for (size_t i = 0; i < count; ++i) {
        for (size_t c = 0; c < 3; ++c) {
          const float level = std::clamp(row[i * 4 + c] * scaling.unit, 0.0F, 255.0F);
          const float value = level * scaling.factor[c] + scaling.bias[c];
          ASSERT_EQ(planar[c * count + i], convert(value)) << count << " " << i;
          ASSERT_EQ(interleaved[i * 3 + c], convert(value)) << count << " " << i;
        }
      }
    });
  }
}

TEST(Mix, WritersClampScaleAndStayInTheirMemory) {
  // Factors and levels whose products are exact, so that a fused multiply-add changes nothing.
  expect_writers<float>([](float value) { return value; });
  expect_writers<uint16_t>(bfloat16_of);
  expect_writers<uint8_t>(
      [](float value) { return uint8_t(std::clamp(std::nearbyint(value), 0.0F, 255.0F)); });
}

TEST(Mix, PixelsOfThreeBytesBecomeFourAndThreeAgain) {
  for (const size_t count : {1UL, 15UL, 16UL, 33UL, 100UL}) {
    const std::vector<uint8_t> rgb = [&] {
      std::vector<uint8_t> bytes = noise(count * 3, count);
      bytes.resize(count * 3);
      bytes.shrink_to_fit();
      return bytes;
    }();
    for_each_vector_target([&] {
      std::vector<uint8_t> rgbx(count * 4 + kPadding), back(count * 3);
      widen_pixels(rgb.data(), count, rgbx.data());
      for (size_t i = 0; i < count * 3; ++i) ASSERT_EQ(rgbx[i / 3 * 4 + i % 3], rgb[i]);
      narrow_pixels(rgbx.data(), count, back.data());
      EXPECT_EQ(back, rgb);
    });
  }
}

TEST(Mix, RoundedLevelsAreClamped) {
  const std::vector<float> row = {-3, 0.4F, 0.6F, 254.6F, 255.4F, 300, 7, 8};
  for_each_vector_target([&] {
    std::vector<float> padded = row;
    padded.resize(row.size() + kPadding);
    std::vector<uint8_t> out(row.size() + kPadding);
    round_levels(padded.data(), row.size(), out.data());
    out.resize(row.size());
    EXPECT_EQ(out, (std::vector<uint8_t>{0, 0, 1, 255, 255, 255, 7, 8}));
  });
}

}  // namespace
}  // namespace yard::images
