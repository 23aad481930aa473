#include "collective/element_internal.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace yard::collective {
namespace {

// The value of a half by the definition of IEEE 754 binary16.
double value_of_f16(uint16_t bits) {
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  const int exponent = (bits >> 10) & 0x1f;
  const int fraction = bits & 0x3ff;
  if (exponent == 31) return fraction == 0 ? sign * INFINITY : NAN;
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  return sign * std::ldexp(1024 + fraction, exponent - 25);
}

TEST(ElementTest, EveryHalfBecomesItsValueAndComesBack) {
  for (uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float value = f32_of_f16(half);
    if (std::isnan(value_of_f16(half))) {
      EXPECT_TRUE(std::isnan(value));
      EXPECT_TRUE(std::isnan(f32_of_f16(f16_of_f32(value))));
      continue;
    }
    ASSERT_EQ(value, value_of_f16(half)) << bits;
    ASSERT_EQ(f16_of_f32(value), half) << bits;
  }
}

TEST(ElementTest, BetweenTwoHalvesTheNearerWinsAndTiesGoToEven) {
  for (uint32_t bits = 0; bits < 0x7bff; ++bits) {
    const auto low = static_cast<uint16_t>(bits);
    const auto high = static_cast<uint16_t>(bits + 1);
    const float middle = (f32_of_f16(low) + f32_of_f16(high)) / 2;  // exact in f32
    ASSERT_EQ(f16_of_f32(middle), bits % 2 == 0 ? low : high) << bits;
    ASSERT_EQ(f16_of_f32(std::nextafter(middle, 0.0f)), low) << bits;
    ASSERT_EQ(f16_of_f32(std::nextafter(middle, INFINITY)), high) << bits;
  }
  EXPECT_EQ(f16_of_f32(65519.0f), 0x7bff);
  EXPECT_EQ(f16_of_f32(65520.0f), 0x7c00);
  EXPECT_EQ(f16_of_f32(-1e30f), 0xfc00);
  EXPECT_EQ(f16_of_f32(1e-30f), 0);
}

TEST(ElementTest, BfloatsRoundToNearestEvenAndKeepNan) {
  EXPECT_EQ(bf16_of_f32(1.0f), 0x3f80);
  EXPECT_EQ(bf16_of_f32(std::bit_cast<float>(0x3f808000u)), 0x3f80);
  EXPECT_EQ(bf16_of_f32(std::bit_cast<float>(0x3f818000u)), 0x3f82);
  EXPECT_EQ(bf16_of_f32(std::bit_cast<float>(0x3f808001u)), 0x3f81);
  EXPECT_EQ(bf16_of_f32(INFINITY), 0x7f80);
  EXPECT_EQ(bf16_of_f32(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_TRUE(std::isnan(f32_of_bf16(bf16_of_f32(std::bit_cast<float>(0x7f800001u)))));
  for (uint32_t bits = 0; bits < 0x7f80; ++bits)
    ASSERT_EQ(bf16_of_f32(f32_of_bf16(static_cast<uint16_t>(bits))), bits);
}

template <typename T>
std::vector<T> reduced(const Reduction& reduction, const std::vector<std::vector<T>>& sources) {
  std::vector<T> result(sources[0].size());
  std::vector<const std::byte*> srcs;
  for (const auto& source : sources) srcs.push_back(std::as_bytes(std::span(source)).data());
  const std::array<std::byte*, 1> dsts{std::as_writable_bytes(std::span(result)).data()};
  reduce(reduction, dsts, srcs, result.size());
  return result;
}

TEST(ElementTest, AdditionsGoFromTheFirstSourceToTheLast) {
  // In any other order the small one is not lost.
  const std::vector<std::vector<float>> sources{{1e8f}, {1.0f}, {-1e8f}};
  EXPECT_EQ(reduced<float>({.dtype = DType::kF32}, sources), std::vector<float>{0.0f});
}

TEST(ElementTest, HalvesAreRoundedOnceAtTheEnd) {
  // 256 + 1 is no bfloat16, 256 + 1 + 1 is.
  const std::vector<std::vector<uint16_t>> sources{
      {bf16_of_f32(256)}, {bf16_of_f32(1)}, {bf16_of_f32(1)}};
  EXPECT_EQ(f32_of_bf16(reduced<uint16_t>({.dtype = DType::kBF16}, sources)[0]), 258.0f);
}

TEST(ElementTest, AveragesOfBytesDoNotOverflow) {
  EXPECT_EQ(reduced<uint8_t>({.dtype = DType::kU8, .op = ReduceOp::kAverage, .divisor = 2},
                             {{200, 255}, {100, 255}}),
            (std::vector<uint8_t>{150, 255}));
}

TEST(ElementTest, MinAndMaxSpreadNan) {
  const float nan = NAN;
  for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) {
    const auto result =
        reduced<float>({.dtype = DType::kF32, .op = op}, {{nan, 1, 1}, {1, nan, 1}, {1, 1, nan}});
    for (const float value : result) EXPECT_TRUE(std::isnan(value));
  }
}

TEST(ElementTest, EveryElementOfAnyCountIsReducedAndNoneBeyond) {
  for (const size_t count : {1, 15, 17, 1023, 1025, 5000}) {
    std::vector<int32_t> a(count + 1), b(count + 1);
    for (size_t i = 0; i <= count; ++i) {
      a[i] = static_cast<int32_t>(i);
      b[i] = static_cast<int32_t>(3 * i);
    }
    const std::array<std::byte*, 2> dsts{std::as_writable_bytes(std::span(a)).data(),
                                         std::as_writable_bytes(std::span(b)).data()};
    const std::array<const std::byte*, 2> srcs{dsts[0], dsts[1]};  // in place
    reduce({.dtype = DType::kI32}, dsts, srcs, count);
    for (size_t i = 0; i < count; ++i) {
      ASSERT_EQ(a[i], static_cast<int32_t>(4 * i));
      ASSERT_EQ(b[i], a[i]);
    }
    EXPECT_EQ(a[count], static_cast<int32_t>(count));
    EXPECT_EQ(b[count], static_cast<int32_t>(3 * count));
  }
}

}  // namespace
}  // namespace yard::collective
