#include "tensor/normal.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

namespace yard::tensor {
namespace {

std::vector<float> normals(const Draw& draw, size_t count) {
  std::vector<float> values(count);
  fill_normal(draw, values);
  return values;
}

TEST(NormalTest, HasMeanZeroAndVarianceOne) {
  const auto values = normals({.seed = 3}, 200'000);
  double sum = 0, squares = 0, fourth = 0;
  for (const double v : values) {
    sum += v;
    squares += v * v;
    fourth += v * v * v * v;
  }
  const auto n = static_cast<double>(values.size());
  EXPECT_NEAR(sum / n, 0, 0.01);
  EXPECT_NEAR(squares / n, 1, 0.02);
  EXPECT_NEAR(fourth / n, 3, 0.1);
}

TEST(NormalTest, AnElementDoesNotDependOnHowManyAreDrawn) {
  const auto many = normals({.seed = 3, .step = 9, .sample = 5}, 37);
  for (size_t count : {1, 2, 3, 4, 5, 36}) {
    const auto few = normals({.seed = 3, .step = 9, .sample = 5}, count);
    EXPECT_TRUE(std::equal(few.begin(), few.end(), many.begin())) << count;
  }
}

TEST(NormalTest, EverythingThatNamesADrawChangesIt) {
  const Draw base{.seed = 1, .purpose = Purpose::kNoise, .step = 2, .sample = 3};
  std::set<float> seen = {normals(base, 1)[0]};
  Draw other = base;
  other.seed = 2;
  EXPECT_TRUE(seen.insert(normals(other, 1)[0]).second);
  other = base;
  other.purpose = Purpose::kLatentSample;
  EXPECT_TRUE(seen.insert(normals(other, 1)[0]).second);
  other = base;
  other.step = 3;
  EXPECT_TRUE(seen.insert(normals(other, 1)[0]).second);
  other = base;
  other.sample = uint64_t{3} << 32;
  EXPECT_TRUE(seen.insert(normals(other, 1)[0]).second);
}

TEST(NormalTest, DrawsBelowABoundReachEveryValueEvenly) {
  std::vector<int> counts(10);
  for (uint64_t sample = 0; sample < 10'000; ++sample)
    ++counts[static_cast<size_t>(draw_below({.sample = sample}, 10))];
  for (const int count : counts) EXPECT_NEAR(count, 1000, 150);
  EXPECT_EQ(draw_below({.sample = 1}, 1), 0);
}

}  // namespace
}  // namespace yard::tensor
