#include "parallel/bf16_rounding.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

namespace yard::parallel {
namespace {

float value_of(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

std::vector<uint16_t> rounded(const std::vector<float>& in, const RoundingDraws& draws) {
  std::vector<uint16_t> out(in.size());
  round_stochastically(in, out, draws);
  return out;
}

TEST(Bf16RoundingTest, EachResultIsANeighbourAndTheMeanIsTheValue) {
  // Between 1 and 1 + 2^-7, a quarter of the way up.
  const float value = 1.0F + 0x1p-9F;
  const std::vector<float> in(100'000, value);
  double sum = 0;
  for (const uint16_t bits : rounded(in, {.seed = 1, .step = 2, .parameter = 3})) {
    const float got = value_of(bits);
    ASSERT_TRUE(got == 1.0F || got == 1.0F + 0x1p-7F) << got;
    sum += got;
  }
  // Five deviations of the mean of so many draws.
  EXPECT_NEAR(sum / 100'000, value, 5 * 0x1p-7 * std::sqrt(0.25 * 0.75 / 100'000));
}

TEST(Bf16RoundingTest, DrawsDependOnTheElementAndNotOnWhereAPieceBegins) {
  std::vector<float> in;
  for (int i = 0; i < 101; ++i) in.push_back(1.0F + static_cast<float>(i) * 1e-3F);
  const RoundingDraws draws{.seed = 5, .step = 1, .parameter = 9};
  const auto whole = rounded(in, draws);
  for (size_t begin = 0; begin < in.size(); begin += 13) {
    const std::vector<float> rest(in.begin() + static_cast<std::ptrdiff_t>(begin), in.end());
    RoundingDraws later = draws;
    later.begin = begin;
    const auto piece = rounded(rest, later);
    for (size_t i = 0; i < piece.size(); ++i) EXPECT_EQ(piece[i], whole[begin + i]) << begin << i;
  }
}

TEST(Bf16RoundingTest, AnotherStepDrawsAnew) {
  const std::vector<float> in(64, 1.0F + 0x1p-8F);
  EXPECT_NE(rounded(in, {.step = 1}), rounded(in, {.step = 2}));
  EXPECT_EQ(rounded(in, {.step = 1}), rounded(in, {.step = 1}));
}

TEST(Bf16RoundingTest, ExactInfiniteAndNanStayWhatTheyAre) {
  const float infinity = std::numeric_limits<float>::infinity();
  const auto out = rounded(
      {0.0F, -0.0F, 1.5F, infinity, -infinity, std::bit_cast<float>(uint32_t{0x7F80'0001})}, {});
  EXPECT_EQ(value_of(out[0]), 0.0F);
  EXPECT_TRUE(std::signbit(value_of(out[1])));
  EXPECT_EQ(value_of(out[2]), 1.5F);
  EXPECT_EQ(value_of(out[3]), infinity);
  EXPECT_EQ(value_of(out[4]), -infinity);
  EXPECT_TRUE(std::isnan(value_of(out[5])));
}

}  // namespace
}  // namespace yard::parallel
