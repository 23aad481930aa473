#include "parallel/flat_layout.h"

#include <gtest/gtest.h>

namespace yard::parallel {
namespace {

// Odd, empty and oversized tensors on purpose: biases of 3, unused tensors, embeddings.
const std::vector<int64_t> kCounts = {3, 100'000, 0, 64, 64, 17, 1};
const std::vector<std::string> kNames = {"a", "b", "c", "d.weight", "d.bias", "e", "f"};

class FlatLayoutTest : public testing::TestWithParam<int> {
 protected:
  const FlatLayout layout_ = plan_flat_layout(kNames, kCounts, 128, GetParam());
};

TEST_P(FlatLayoutTest, UnitsCoverTheFlatBufferOnceInOrderOfUse) {
  int64_t end = 0, local_end = 0;
  size_t parameter = 0;
  for (size_t u = 0; u < layout_.units.size(); ++u) {
    EXPECT_EQ(layout_.units[u].begin, end);
    EXPECT_EQ(layout_.units[u].local_begin, local_end);
    EXPECT_EQ(layout_.units[u].first_parameter, parameter);
    end += layout_.unit_elements(u);
    local_end += layout_.units[u].chunk_elements;
    parameter += layout_.units[u].parameter_count;
  }
  EXPECT_EQ(end, layout_.whole_elements());
  EXPECT_EQ(local_end, layout_.local_elements());
  EXPECT_EQ(parameter, kCounts.size());
}

TEST_P(FlatLayoutTest, EveryParameterLiesInsideItsUnitOnACacheLine) {
  for (size_t i = 0; i < kCounts.size(); ++i) {
    EXPECT_EQ(layout_.offsets[i] % kAlignmentElements, 0);
    EXPECT_LE(layout_.offsets[i] + kCounts[i], layout_.gap_end(i));
    EXPECT_LE(layout_.gap_end(i), layout_.unit_elements(layout_.unit_of[i]));
  }
}

TEST_P(FlatLayoutTest, TheRanksHoldEveryElementOnce) {
  for (size_t i = 0; i < kCounts.size(); ++i) {
    int64_t next = 0;
    for (int shard = 0; shard < GetParam(); ++shard) {
      const FlatRange range = layout_.range_of(i, shard);
      if (range.count == 0) continue;
      EXPECT_EQ(range.begin, next) << i;
      EXPECT_LE(range.local_begin + range.count, layout_.local_elements());
      next += range.count;
    }
    EXPECT_EQ(next, kCounts[i]) << i;
  }
}

TEST_P(FlatLayoutTest, ChunksBeginOnACacheLine) {
  for (const FlatUnit& unit : layout_.units) {
    EXPECT_EQ(unit.chunk_elements % kAlignmentElements, 0);
    EXPECT_EQ(unit.begin % kAlignmentElements, 0);
  }
}

TEST_P(FlatLayoutTest, OnlyAModuleLargerThanTheLimitMakesAUnitLargerThanTheLimit) {
  for (size_t u = 0; u < layout_.units.size(); ++u) {
    const int64_t padding = kAlignmentElements * GetParam();
    EXPECT_TRUE(layout_.unit_elements(u) < 128 + padding || layout_.units[u].parameter_count == 1);
  }
}

INSTANTIATE_TEST_SUITE_P(Shards, FlatLayoutTest, testing::Values(1, 2, 3, 4, 17));

TEST(FlatLayoutModulesTest, ParametersOfAModuleStayTogether) {
  const FlatLayout layout = plan_flat_layout(kNames, kCounts, 64, 2);
  EXPECT_EQ(layout.unit_of[3], layout.unit_of[4]);
  EXPECT_NE(layout.unit_of[4], layout.unit_of[5]);
}

TEST(FlatLayoutModulesTest, NoParametersMakeNoUnits) {
  const FlatLayout layout = plan_flat_layout({}, {}, 128, 2);
  EXPECT_EQ(layout.whole_elements(), 0);
  EXPECT_TRUE(layout.units.empty());
}

}  // namespace
}  // namespace yard::parallel
