// What the others see when a rank dies, stops, leaves, gives up or calls something else.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <latch>
#include <thread>

#include "base/file.h"
#include "base/random.h"
#include "collective/collective.h"
#include "collective/testing/rank_processes.h"
#include "collective/testing/ranks.h"

namespace yard::collective {
namespace {

using namespace std::chrono_literals;

bool mentions(const Error& error, std::string_view text) {
  return error.message.find(text) != std::string::npos;
}

// ---- calls that differ

// Each rank, being a thread, has its own.
thread_local std::vector<float> few(10);
thread_local std::vector<float> many(100'000);
thread_local std::vector<float> more(100'001);

class MismatchTest : public ::testing::TestWithParam<Hosts> {
 protected:
  // `odd_one` on the last rank, `usual` on the others.
  void expect_mismatch(const std::function<std::unique_ptr<Work>(Group&)>& usual,
                       const std::function<std::unique_ptr<Work>(Group&)>& odd_one,
                       std::string_view named, std::string_view also_named) {
    on_ranks(options_for(GetParam()), [&](Group& group) {
      (void)group.barrier()->wait();  // may see the end of the group already
      const bool is_odd = group.rank() + 1 == group.size();
      auto work = is_odd ? odd_one(group) : usual(group);
      auto later = group.barrier();
      auto status = work->wait();
      ASSERT_FALSE(status);
      EXPECT_EQ(status.error().code, Code::kInvalidArgument) << status.error().message;
      EXPECT_TRUE(mentions(status.error(), named)) << status.error().message;
      EXPECT_TRUE(mentions(status.error(), also_named)) << status.error().message;
      EXPECT_TRUE(mentions(status.error(), fmt::format("rank {}", group.size() - 1)));
      // The group is dead, and says why.
      auto after = later->wait();
      ASSERT_FALSE(after);
      EXPECT_EQ(after.error().message, status.error().message);
      EXPECT_FALSE(group.allocate(100));
    });
  }
};

TEST_P(MismatchTest, DifferentOperationsAreAnErrorOnAllSides) {
  expect_mismatch(
      [](Group& group) { return group.all_reduce(bytes_of(few), DType::kF32, ReduceOp::kSum); },
      [](Group& group) { return group.barrier(); }, "all_reduce #2 (f32, sum, 40 bytes)",
      "barrier #2");
}

TEST_P(MismatchTest, DifferentTypesAreAnErrorOnAllSides) {
  expect_mismatch(
      [](Group& group) { return group.all_reduce(bytes_of(many), DType::kF32, ReduceOp::kSum); },
      [](Group& group) { return group.all_reduce(bytes_of(many), DType::kI32, ReduceOp::kSum); },
      "f32", "i32");
}

TEST_P(MismatchTest, DifferentSizesAreAnErrorOnAllSides) {
  expect_mismatch(
      [](Group& group) { return group.all_reduce(bytes_of(many), DType::kF32, ReduceOp::kMax); },
      [](Group& group) { return group.all_reduce(bytes_of(more), DType::kF32, ReduceOp::kMax); },
      "400000 bytes", "400004 bytes");
}

TEST_P(MismatchTest, DifferentRootsAreAnErrorOnAllSides) {
  expect_mismatch([](Group& group) { return group.broadcast(bytes_of(few), 0); },
                  [](Group& group) { return group.broadcast(bytes_of(few), 1); }, "root 0",
                  "root 1");
}

INSTANTIATE_TEST_SUITE_P(Layouts, MismatchTest,
                         ::testing::Values(Hosts(2, "a"), Hosts(4, "a"), Hosts{"a", "b"},
                                           Hosts{"a", "a", "b", "b", "c"}),
                         [](const auto& param_info) { return joined(param_info.param); });

// ---- ranks that go in an orderly way

class LeavingTest : public ::testing::TestWithParam<Hosts> {};

TEST_P(LeavingTest, AbortReachesAllAndTellsTheReason) {
  std::latch all_connected(static_cast<ptrdiff_t>(GetParam().size()));
  on_ranks(options_for(GetParam()), [&](Group& group) {
    all_connected.arrive_and_wait();
    if (group.rank() == 1) group.abort("the data is bad");
    auto status = group.barrier()->wait();
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, Code::kUnavailable);
    EXPECT_TRUE(mentions(status.error(), "rank 1 gave up: the data is bad"))
        << status.error().message;
  });
}

TEST_P(LeavingTest, ARankThatLeftIsNamedByWhoeverWaitsForIt) {
  on_ranks(options_for(GetParam()), [](Group& group) {
    ASSERT_TRUE(group.barrier()->wait());
    if (group.rank() == 1) return;
    auto status = group.barrier()->wait();
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, Code::kUnavailable) << status.error().message;
    EXPECT_TRUE(mentions(status.error(), "rank 1")) << status.error().message;
  });
}

TEST_P(LeavingTest, TheLastOperationIsWholeAlthoughSomeHaveLeftAlready) {
  for (int repetition = 0; repetition < 10; ++repetition) {
    on_ranks(options_for(GetParam()), [](Group& group) {
      std::vector<float> data(30'000, 1.0f);
      auto status = group.all_reduce(bytes_of(data), DType::kF32, ReduceOp::kSum)->wait();
      ASSERT_TRUE(status) << status.error().message;
      EXPECT_EQ(data[29'999], static_cast<float>(group.size()));
    });
  }
}

TEST_P(LeavingTest, ALivingRankThatDoesNotComeIsNamedAfterTheTimeout) {
  with_patience(150ms, [&](std::chrono::milliseconds timeout) {
    auto options = options_for(GetParam());
    for (auto& each : options) each.operation_timeout = timeout;
    std::latch others_ended(static_cast<ptrdiff_t>(GetParam().size()) - 1);
    return complaints_of(options, [&](Group& group) -> std::string {
      if (group.rank() == 1) {
        others_ended.wait();
        return "";
      }
      const auto status = group.barrier()->wait();
      others_ended.count_down();
      return status ? "a barrier without rank 1"
                    : complaint_unless(status.error(), Code::kDeadlineExceeded, "rank 1");
    });
  });
}

INSTANTIATE_TEST_SUITE_P(Layouts, LeavingTest,
                         ::testing::Values(Hosts(2, "a"), Hosts(3, "a"), Hosts{"a", "b"},
                                           Hosts{"a", "b", "c"}),
                         [](const auto& param_info) { return joined(param_info.param); });

TEST(DestroyedGroupTest, FreesItsOwnOperationAndItsPeers) {
  auto groups = connect_all(options_for(one_host(2)));
  ASSERT_TRUE(groups[0] && groups[1]);
  std::vector<float> data(10), other(20);
  auto first = (*groups[0])->all_reduce(bytes_of(data), DType::kF32, ReduceOp::kSum);
  auto second = (*groups[0])->barrier();
  groups[0]->reset();
  EXPECT_FALSE(first->wait());
  EXPECT_FALSE(second->wait());
  auto status = (*groups[1])->all_reduce(bytes_of(other), DType::kF32, ReduceOp::kSum)->wait();
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Code::kUnavailable);
  EXPECT_TRUE(mentions(status.error(), "rank 0 has left")) << status.error().message;
}

TEST(RebuiltGroupTest, AfterADeathTheOthersGoOnAsASmallerGroupInTheSameProcesses) {
  const auto options = options_for(one_host(3));
  const uint16_t next_port = free_port();
  on_ranks(options, [&](Group& group) {
    if (group.rank() == 1) return group.abort("tried");
    while (group.barrier()->wait()) {
    }
    // The survivors keep their order.
    RendezvousOptions smaller = options[static_cast<size_t>(group.rank())];
    smaller.rank = group.rank() == 0 ? 0 : 1;
    smaller.world_size = 2;
    smaller.master_port = next_port;
    smaller.generation = 1;
    auto rebuilt = connect(smaller, StopToken());
    ASSERT_TRUE(rebuilt) << rebuilt.error().message;
    std::vector<float> data(1000, 1);
    ASSERT_TRUE((*rebuilt)->all_reduce(bytes_of(data), DType::kF32, ReduceOp::kSum)->wait());
    EXPECT_EQ(data, std::vector<float>(1000, 2));
    EXPECT_FALSE(group.barrier()->wait());
  });
}

// ---- ranks that die: real processes

// One round of operations, several of them on their way at once.
Status mixed_round(Group& group) {
  static thread_local std::vector<float> small(100, 1), large(150'000, 1);
  static thread_local std::unique_ptr<SharedBuffer> shared;
  std::vector<std::byte> gathered(large.size() * 4 * static_cast<size_t>(group.size()));
  if (!shared) {
    YARD_ASSIGN(shared, group.allocate(400'000));
  }
  auto first = group.all_reduce(bytes_of(large), DType::kF32, ReduceOp::kAverage);
  auto second = group.all_gather(bytes_of(large), gathered);
  auto third = group.all_reduce(shared->bytes(), DType::kF32, ReduceOp::kSum);
  auto fourth = group.broadcast(bytes_of(small), 1);
  Status status = group.barrier()->wait();
  // Whoever has an error first, the later ones have the same.
  for (auto* work : {&fourth, &third, &second, &first})
    if (auto each = (*work)->wait(); !each) status = each;
  if (!status) shared.reset();
  return status;
}

class DeathTest : public ::testing::TestWithParam<Hosts> {};

TEST_P(DeathTest, IsToldToAllByNameWhereverItHappens) {
  for (uint64_t round = 0; round < (kIsSlow ? 2 : 4); ++round) {
    const auto size = static_cast<int>(GetParam().size());
    const int victim = static_cast<int>(round) % size;
    auto options = options_for(GetParam());
    for (int rank = 0; rank < size; ++rank)
      options[static_cast<size_t>(rank)].host_name =
          "node-" + GetParam()[static_cast<size_t>(rank)];
    const std::string wanted =
        fmt::format("rank {} (on node-{}) died", victim, GetParam()[static_cast<size_t>(victim)]);
    RankProcesses processes(options, mixed_round);
    ASSERT_TRUE(processes.all_run());
    for (int rank = 0; rank < size; ++rank) {
      // Nothing that would outlive the processes has a name.
      const std::string maps = processes.maps_of(rank);
      EXPECT_NE(maps.find("/memfd:yard-collective"), std::string::npos);
      EXPECT_EQ(maps.find("/dev/shm/"), std::string::npos);
    }
    // A random instant of the loop.
    const timespec instant{0, static_cast<long>(random_below(8'000'000, 7, 0, round))};
    ::nanosleep(&instant, nullptr);
    processes.signal(victim, SIGKILL);
    // The test waits for less than half of an operation's time-out.
    for (int i = 0; i + 1 < size; ++i) {
      const Told told = processes.next();
      EXPECT_EQ(told.code, static_cast<int32_t>(Code::kUnavailable)) << told.message;
      EXPECT_NE(std::string(told.message).find(wanted), std::string::npos)
          << "rank " << told.rank << ": " << told.message;
    }
  }
}

TEST_P(DeathTest, AStoppedRankIsNamedAfterTheTimeout) {
  const auto size = static_cast<int>(GetParam().size());
  for (const int victim : {size - 1, 0}) {
    with_patience(300ms, [&](std::chrono::milliseconds timeout) {
      return complaint_of_stopped(GetParam(), victim, timeout, mixed_round);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, DeathTest,
                         ::testing::Values(Hosts(2, "a"), Hosts(3, "a"), Hosts{"a", "b"},
                                           Hosts{"a", "a", "b"}),
                         [](const auto& param_info) { return joined(param_info.param); });

}  // namespace
}  // namespace yard::collective
