#include "base/random.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

namespace yard {
namespace {

// Known answers of the authors' library Random123, kat_vectors, philox4x32-10.
TEST(Philox, MatchesThePublishedVectors) {
  using Words = std::array<uint32_t, 4>;
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(philox({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(RandomU64, DependsOnEveryArgument) {
  const std::set<uint64_t> values = {random_u64(0, 0, 0),
                                     random_u64(1, 0, 0),
                                     random_u64(0, 1, 0),
                                     random_u64(0, 0, 1),
                                     random_u64(uint64_t{1} << 40, 0, 0),
                                     random_u64(0, uint64_t{1} << 40, 0),
                                     random_u64(0, 0, uint64_t{1} << 40)};
  EXPECT_EQ(values.size(), 7u);
  EXPECT_EQ(random_u64(3, 4, 5), random_u64(3, 4, 5));
}

TEST(RandomUniform, FillsZeroToOneEvenly) {
  constexpr int kCount = 40'000;
  double sum = 0, square_sum = 0;
  for (int i = 0; i < kCount; ++i) {
    const double value = random_uniform(7, 0, static_cast<uint64_t>(i));
    ASSERT_GE(value, 0);
    ASSERT_LT(value, 1);
    sum += value;
    square_sum += value * value;
  }
  // Six standard deviations of the mean of kCount values: 6 * sqrt(1/12 / kCount).
  EXPECT_NEAR(sum / kCount, 0.5, 0.009);
  EXPECT_NEAR(square_sum / kCount, 1.0 / 3, 0.009);
}

TEST(RandomBelow, ReachesEveryValueEvenly) {
  constexpr uint64_t kBound = 7;
  std::array<int, kBound> seen{};
  for (uint64_t i = 0; i < 7'000; ++i) ++seen.at(random_below(kBound, 1, 2, i));
  for (const int count : seen) EXPECT_NEAR(count, 1000, 180);  // six standard deviations
  EXPECT_EQ(random_below(1, 1, 2, 3), 0u);
}

TEST(RandomPermutation, VisitsEachValueOnce) {
  for (const uint64_t count : {1, 2, 3, 4, 5, 16, 17, 1000, 4097}) {
    const RandomPermutation permutation(count, 11, 0);
    std::vector<bool> seen(count);
    for (uint64_t i = 0; i < count; ++i) {
      const uint64_t value = permutation.permute(i);
      ASSERT_LT(value, count);
      EXPECT_FALSE(seen[value]) << count;
      seen[value] = true;
    }
  }
}

TEST(RandomPermutation, ChangesWithSeedAndStream) {
  const RandomPermutation a(1000, 1, 0), b(1000, 2, 0), c(1000, 1, 1), again(1000, 1, 0);
  int same_b = 0, same_c = 0, fixed = 0;
  for (uint64_t i = 0; i < 1000; ++i) {
    same_b += a.permute(i) == b.permute(i);
    same_c += a.permute(i) == c.permute(i);
    fixed += a.permute(i) == i;
    EXPECT_EQ(a.permute(i), again.permute(i));
  }
  // About one agreement is expected of independent permutations.
  EXPECT_LT(same_b, 12);
  EXPECT_LT(same_c, 12);
  EXPECT_LT(fixed, 12);
}

TEST(RandomPermutation, SmallOnesReachEveryOrder) {
  std::set<std::array<uint64_t, 3>> orders;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const RandomPermutation p(3, seed, 0);
    orders.insert({p.permute(0), p.permute(1), p.permute(2)});
  }
  EXPECT_EQ(orders.size(), 6u);
}

TEST(RandomPermutation, WorksOverTheWholeRangeOfIndices) {
  const RandomPermutation permutation(UINT64_MAX, 1, 0);
  EXPECT_NE(permutation.permute(0), permutation.permute(UINT64_MAX - 1));
}

TEST(RandomPermutationDeathTest, RefusesAnIndexBeyondItsCount) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(RandomPermutation(3, 0, 0).permute(3), "check failed");
}

}  // namespace
}  // namespace yard
