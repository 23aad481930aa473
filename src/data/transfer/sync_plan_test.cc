#include "transfer/sync_plan.h"

#include <gtest/gtest.h>

namespace yard::transfer {
namespace {

using namespace std::chrono_literals;
using storage::ObjectInfo;

const auto kNoon = std::chrono::system_clock::time_point(1'000'000s);

ObjectInfo object(const std::string& key, uint64_t size_bytes = 1,
                  std::chrono::milliseconds age = 0ms, const std::string& etag = "") {
  return {key, size_bytes, etag, kNoon - age};
}

std::string copies_of(const SyncPlan& plan) {
  std::string keys;
  for (const ObjectInfo& info : plan.copies) keys += info.key + " ";
  return keys;
}

TEST(IsSameTest, SizeAndTimeDecideAndEqualEtagsDo) {
  EXPECT_TRUE(is_same(object("k"), object("k"), {}));
  EXPECT_FALSE(is_same(object("k", 1), object("k", 2), {}));
  EXPECT_TRUE(is_same(object("k", 1, 1h), object("k"), {}));   // the target is newer
  EXPECT_FALSE(is_same(object("k"), object("k", 1, 1h), {}));  // the source is
  EXPECT_TRUE(is_same(object("k", 1, 0h, "e"), object("k", 1, 1h, "e"), {}));
  EXPECT_FALSE(is_same(object("k", 1, 0h, "e"), object("k", 2, 1h, "e"), {}));
  EXPECT_TRUE(is_same(object("k"), object("k", 1, 1h), {.size_only = true}));
  // HTTP tells whole seconds, listings thousandths.
  EXPECT_TRUE(is_same(object("k", 1, 100ms), object("k", 1, 999ms), {}));
  EXPECT_FALSE(is_same(object("k", 1, 0ms), object("k", 1, 1ms), {}));
}

TEST(SyncPlanTest, WhatIsMissingOrDiffersIsCopied) {
  const std::vector<ObjectInfo> source = {object("a"), object("b", 2), object("c"), object("e")};
  const std::vector<ObjectInfo> target = {object("a"), object("b", 3), object("d")};
  const SyncPlan plan = plan_sync(source, target, {});
  EXPECT_EQ(copies_of(plan), "b c e ");
  EXPECT_EQ(plan.same_count, 1U);
  EXPECT_TRUE(plan.deletions.empty());
}

TEST(SyncPlanTest, OnlyWhatTheTargetAloneHasIsDeletedAndOnlyWhenAsked) {
  const std::vector<ObjectInfo> source = {object("b"), object("d")};
  const std::vector<ObjectInfo> target = {object("a"), object("b"), object("c"), object("d"),
                                          object("e")};
  EXPECT_EQ(plan_sync(source, target, {.delete_others = true}).deletions,
            (std::vector<std::string>{"a", "c", "e"}));
  EXPECT_TRUE(plan_sync(source, target, {}).deletions.empty());
  EXPECT_EQ(plan_sync({}, target, {.delete_others = true}).deletions.size(), 5U);
  EXPECT_EQ(copies_of(plan_sync(source, {}, {.delete_others = true})), "b d ");
}

}  // namespace
}  // namespace yard::transfer
