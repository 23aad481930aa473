#include "process_group/rank_names.h"

#include <gtest/gtest.h>

namespace yard::process_group {
namespace {

TEST(RankNamesTest, TheFirstMentionOfEachRankIsExplained) {
  const RankNames names({"alpha", "alpha", "beta"}, {});
  EXPECT_EQ(names.explain("rank 2 died: its process ended"),
            "rank 2 (on beta) died: its process ended");
  EXPECT_EQ(names.explain("rank 0 called a, rank 1 called b; rank 0 ends"),
            "rank 0 (on alpha) called a, rank 1 (on alpha) called b; rank 0 ends");
}

TEST(RankNamesTest, ASubgroupsRanksAreThoseOfTheJobToo) {
  const RankNames names({"alpha", "beta"}, {3, 12});
  EXPECT_EQ(names.explain("all_reduce: rank 1 died"),
            "all_reduce: rank 1 (global rank 12, on beta) died");
  EXPECT_EQ(names.name(0), "rank 0 (global rank 3, on alpha)");
}

TEST(RankNamesTest, WhatIsNoRankOfTheGroupStaysAsItIs) {
  const RankNames names({"alpha"}, {});
  for (const char* text : {"", "rank", "rank ", "rank x", "rank 1",
                           "rank 99999999999999999999 died", "frank 0 died", "rank -1"})
    EXPECT_EQ(names.explain(text), text);
  EXPECT_EQ(RankNames().explain("rank 0 died"), "rank 0 died");
  EXPECT_EQ(names.explain("rank 1 and rank 0"), "rank 1 and rank 0 (on alpha)");
}

}  // namespace
}  // namespace yard::process_group
