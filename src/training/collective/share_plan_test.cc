#include "collective/share_plan_internal.h"

#include <gtest/gtest.h>

namespace yard::collective {
namespace {

TEST(SharePlanTest, SharesCoverEveryElementOnceAndBeginAtBlocks) {
  for (const size_t element_count : {0, 1, 7, 16, 17, 1000, 4096}) {
    for (const size_t part_count : {1, 2, 3, 8}) {
      size_t next_index = 0;
      for (size_t part = 0; part < part_count; ++part) {
        const Share share = share_of(element_count, part_count, part, 16);
        EXPECT_EQ(share.begin_index, next_index);
        EXPECT_TRUE(share.begin_index % 16 == 0 || share.begin_index == element_count);
        next_index += share.count;
      }
      EXPECT_EQ(next_index, element_count);
    }
  }
}

TEST(SharePlanTest, SharesDifferByAtMostOneBlock) {
  for (size_t part = 0; part < 3; ++part) {
    const size_t count = share_of(160, 3, part, 16).count;
    EXPECT_TRUE(count == 48 || count == 64) << count;
  }
}

TEST(SharePlanTest, OverlapIsWhatBothHave) {
  EXPECT_EQ(overlap_of(0, 10, 4, 3).begin_index, 4u);
  EXPECT_EQ(overlap_of(0, 10, 4, 3).count, 3u);
  EXPECT_EQ(overlap_of(5, 10, 4, 3).begin_index, 5u);
  EXPECT_EQ(overlap_of(5, 10, 4, 3).count, 2u);
  EXPECT_EQ(overlap_of(0, 4, 4, 3).count, 0u);
  EXPECT_EQ(overlap_of(8, 4, 4, 3).count, 0u);
}

}  // namespace
}  // namespace yard::collective
