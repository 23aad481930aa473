// Groups made out of groups, and what the flight recorder says.
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "collective/collective.h"
#include "collective/testing/ranks.h"

namespace yard::collective {
namespace {

int64_t sum(Group& group, int64_t mine) {
  std::vector<int64_t> values(3, mine);
  EXPECT_TRUE(group.all_reduce(bytes_of(values), DType::kI64, ReduceOp::kSum)->wait());
  return values[2];
}

TEST(SplitTest, ColorsMakeGroupsOrderedByKey) {
  on_ranks(options_for({"a", "b", "a", "b", "a", "b"}), [](Group& group) {
    // 0 2 4 | 1 3 5, the first turned around.
    const int color = group.rank() % 2;
    const int key = color == 0 ? -group.rank() : group.rank();
    auto part = group.split(color, key);
    ASSERT_TRUE(part) << part.error().message;
    ASSERT_EQ((*part)->size(), 3);
    EXPECT_EQ((*part)->rank(), color == 0 ? 2 - group.rank() / 2 : group.rank() / 2);
    EXPECT_EQ(sum(**part, group.rank()), color == 0 ? 6 : 9);
    EXPECT_EQ(sum(group, 1), 6);  // the whole goes on working
  });
}

TEST(SplitTest, ARankWithoutColorGetsNoneAndOneAloneGetsAGroupOfOne) {
  on_ranks(options_for(one_host(3)), [](Group& group) {
    auto part = group.split(group.rank() - 1, 0);
    ASSERT_TRUE(part);
    ASSERT_EQ(*part == nullptr, group.rank() == 0);
    if (*part == nullptr) return;
    EXPECT_EQ((*part)->size(), 1);
    EXPECT_EQ(sum(**part, 5), 5);
  });
}

TEST(SplitTest, APartOutlivesTheWhole) {
  auto groups = connect_all(options_for(one_host(2)));
  std::vector<std::jthread> threads;
  for (auto& group : groups) {
    threads.emplace_back([&group] {
      auto part = (*group)->split(0, 0);
      ASSERT_TRUE(part);
      group->reset();
      EXPECT_EQ(sum(**part, 4), 8);
      auto of_part = (*part)->split(0, 0);
      ASSERT_TRUE(of_part);
      EXPECT_EQ(sum(**of_part, 1), 2);
    });
  }
}

TEST(SplitTest, ADeadPartLeavesTheWholeAlive) {
  on_ranks(options_for(one_host(2)), [](Group& group) {
    auto part = group.split(0, 0);
    ASSERT_TRUE(part);
    ASSERT_TRUE(group.barrier()->wait());  // both have their part
    if (group.rank() == 0) (*part)->abort("tried");
    while ((*part)->barrier()->wait()) {
    }
    EXPECT_EQ(sum(group, 3), 6);
  });
}

TEST(FlightTest, OperationsAreRecordedWithWhatBecameOfThem) {
  on_ranks(options_for(one_host(2)), [](Group& group) {
    std::vector<float> data(100);
    for (int i = 0; i < 600; ++i) ASSERT_TRUE(group.barrier()->wait());
    auto first = group.all_reduce(bytes_of(data), DType::kF32, ReduceOp::kSum);
    ASSERT_TRUE(first->wait());
    auto second =
        group.rank() == 0 ? group.broadcast(bytes_of(data), 0) : group.broadcast(bytes_of(data), 1);
    ASSERT_FALSE(second->wait());
    const auto records = group.flight();
    ASSERT_EQ(records.size(), 512u);
    const FlightRecord& good = records[510];
    EXPECT_EQ(good.call, "all_reduce #601 (f32, sum, 400 bytes)");
    EXPECT_GE(good.started_after_us, 0);
    EXPECT_GE(good.ended_after_us, good.started_after_us);
    EXPECT_EQ(good.error, "");
    EXPECT_NE(records[511].error.find("root 1"), std::string::npos) << records[511].error;
  });
}

TEST(FlightTest, ARunningOperationNamesTheRankItWaitsFor) {
  std::vector<RendezvousOptions> options = options_for(one_host(3));
  on_ranks(options, [](Group& group) {
    std::vector<int32_t> seen(1);
    if (group.rank() == 2) {
      // Waits until another waits for this one.
      ASSERT_TRUE(group.receive(bytes_of(seen), 0, 1)->wait());
    }
    auto work = group.barrier();
    while (group.rank() == 0 && !work->done()) {
      const auto records = group.flight();
      if (records.back().waited_rank != 2) continue;
      EXPECT_GE(records.back().started_after_us, 0);
      EXPECT_EQ(records.back().ended_after_us, -1);
      ASSERT_TRUE(group.send(bytes_of(seen), 2, 1)->wait());
      break;
    }
    ASSERT_TRUE(work->wait());
    ASSERT_TRUE(group.barrier()->wait());
  });
}

}  // namespace
}  // namespace yard::collective
