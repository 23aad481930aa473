#include "mount/walk.h"

#include <gtest/gtest.h>

#include <set>

#include "base/random.h"

namespace yard::mount {
namespace {

// All files that were to be fetched after these openings.
std::set<uint64_t> fetched_by(Walk& walk, const std::vector<uint64_t>& openings) {
  std::set<uint64_t> fetched;
  for (const uint64_t index : openings) {
    const WalkPlan plan = walk.on_open(index);
    for (uint64_t at = plan.first_index; at < plan.end_index(); ++at)
      EXPECT_TRUE(fetched.insert(at).second) << at << " is fetched twice";
  }
  return fetched;
}

TEST(WalkTest, OneFileOrTwoFetchNothingAhead) {
  Walk walk;
  EXPECT_TRUE(fetched_by(walk, {0, 1}).empty());
}

TEST(WalkTest, AReaderInOrderFindsAllFilesFetchedButTheFirst) {
  Walk walk;
  std::set<uint64_t> fetched;
  for (uint64_t index = 0; index < 1000; ++index) {
    EXPECT_TRUE(index <= 2 || fetched.contains(index)) << index;
    const WalkPlan plan = walk.on_open(index);
    for (uint64_t at = plan.first_index; at < plan.end_index(); ++at)
      EXPECT_TRUE(fetched.insert(at).second);
  }
}

TEST(WalkTest, SixteenReadersOfOneOrderAreOneWalk) {
  Walk walk;
  std::vector<uint64_t> openings;
  for (uint64_t begin = 0; begin < 320; begin += 16)
    for (uint64_t i = 0; i < 16; ++i) openings.push_back(begin + (i * 7) % 16);
  const auto fetched = fetched_by(walk, openings);
  EXPECT_GT(fetched.size(), 250U);
}

TEST(WalkTest, ReadersOfTheirOwnStretchesAreWalksOfTheirOwn) {
  Walk walk;
  std::vector<uint64_t> openings;
  for (uint64_t step = 0; step < 20; ++step)
    for (uint64_t reader = 0; reader < 8; ++reader) openings.push_back(reader * 10'000 + step);
  const auto fetched = fetched_by(walk, openings);
  for (uint64_t reader = 0; reader < 8; ++reader)
    EXPECT_TRUE(fetched.contains(reader * 10'000 + 19));
}

TEST(WalkTest, OpeningsAtRandomFetchNextToNothing) {
  Walk walk;
  std::vector<uint64_t> openings;
  for (uint64_t i = 0; i < 1000; ++i) openings.push_back(random_below(1'000'000, 1, 0, i));
  EXPECT_LT(fetched_by(walk, openings).size(), 100U);
}

TEST(WalkTest, WhatThePlanCouldNotBeginIsPlannedAgain) {
  Walk walk;
  walk.on_open(0);
  walk.on_open(1);
  const WalkPlan plan = walk.on_open(2);
  ASSERT_GT(plan.count, 4U);
  walk.cut(plan, plan.first_index + 2);
  EXPECT_EQ(walk.on_open(3).first_index, plan.first_index + 2);
}

}  // namespace
}  // namespace yard::mount
