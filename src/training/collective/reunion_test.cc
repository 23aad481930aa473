// Groups that go on without those who are lost.
#include "collective/reunion_internal.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <barrier>
#include <latch>
#include <map>

#include "collective/testing/rank_processes.h"
#include "collective/testing/ranks.h"

namespace yard::collective {
namespace {

using namespace std::chrono_literals;

int64_t sum_over(Group& group, int64_t mine) {
  std::vector<int64_t> values(20'000, mine);
  auto status = group.all_reduce(bytes_of(values), DType::kI64, ReduceOp::kSum)->wait();
  EXPECT_TRUE(status) << status.error().message;
  return values[19'999];
}

Error went_on(Group& smaller) {
  std::vector<int64_t> values(20'000, smaller.rank() + 1);
  auto status = smaller.all_reduce(bytes_of(values), DType::kI64, ReduceOp::kSum)->wait();
  if (!status) return std::move(status).error().while_("going on");
  return {Code::kUnavailable,
          fmt::format("rank {} of {}, {}", smaller.rank(), smaller.size(), values[19'999])};
}

// Works until there is a failure, then goes on with whoever is left.
RankProcesses::Round going_on(const ShrinkOptions& options) {
  return [options](Group& group) -> Status {
    std::vector<float> data(50'000, 1);
    if (group.all_reduce(bytes_of(data), DType::kF32, ReduceOp::kSum)->wait()) return Ok{};
    auto smaller = group.shrink(options);
    if (!smaller) return std::move(smaller).error();
    return went_on(**smaller);
  };
}

class ShrinkTest : public ::testing::TestWithParam<Hosts> {};

TEST_P(ShrinkTest, TheProcessesThatLiveGoOnInTheirOrderWhoeverWasKilled) {
  const auto size = static_cast<int>(GetParam().size());
  for (const int victim : {0, size - 1}) {
    RankProcesses processes(options_for(GetParam()), going_on({}));
    ASSERT_TRUE(processes.all_run());
    processes.signal(victim, SIGKILL);
    for (int i = 0; i + 1 < size; ++i) {
      const Told told = processes.next();
      const int place = told.rank - (told.rank > victim ? 1 : 0);
      EXPECT_EQ(told.message,
                fmt::format("rank {} of {}, {}", place, size - 1, size * (size - 1) / 2))
          << told.rank;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, ShrinkTest,
                         ::testing::Values(Hosts(2, "a"), Hosts(3, "a"), Hosts{"a", "b", "a", "b"}),
                         [](const auto& param_info) { return joined(param_info.param); });

std::string complaint_of_those_without_a_stopped_one(bool is_named,
                                                     std::chrono::milliseconds timeout) {
  auto options = options_for(one_host(3));
  for (auto& each : options) each.operation_timeout = timeout;
  ShrinkOptions how;
  if (is_named)
    how.without = {1};
  else
    how.timeout = 2 * timeout;
  RankProcesses processes(options, going_on(how));
  if (!processes.all_run()) return "a rank that lives was given up";
  processes.signal(1, SIGSTOP);
  std::string complaints;
  for (int i = 0; i < 2; ++i) {
    const Told told = processes.next();
    if (told.message != fmt::format("rank {} of 2, 3", told.rank / 2))
      complaints += fmt::format("rank {}: {}\n", told.rank, told.message);
  }
  return complaints;
}

TEST(ShrinkTest, AStoppedRankIsLeftBehindWhenItIsNamedAndWhenItsTimeIsOver) {
  for (const bool is_named : {true, false})
    with_patience(300ms, [&](std::chrono::milliseconds timeout) {
      return complaint_of_those_without_a_stopped_one(is_named, timeout);
    });
}

TEST(ShrinkTest, HalfOfAGroupGoesOnOnlyWithItsLowestRank) {
  with_patience(700ms, [](std::chrono::milliseconds timeout) {
    std::latch upper_tried(4), lower_went_on(4);
    return complaints_of(options_for(one_host(4)), [&](Group& group) -> std::string {
      // Two and two, as a link that is cut would part them.
      std::string complaint;
      if (group.rank() >= 2) {
        while (group.barrier()->wait()) {
        }
        const auto none = group.shrink({.timeout = 200ms});
        EXPECT_FALSE(none);
        if (!none) complaint = complaint_unless(none.error(), Code::kUnavailable, "no majority");
        upper_tried.arrive_and_wait();
      } else {
        group.abort("tried");
        upper_tried.arrive_and_wait();
        const auto half = group.shrink({.without = {}, .timeout = timeout});
        if (!half) {
          complaint = half.error().message;
        } else {
          EXPECT_EQ((*half)->size(), 2);
          EXPECT_EQ(sum_over(**half, 4), 8);
        }
      }
      lower_went_on.arrive_and_wait();
      return complaint;
    });
  });
}

TEST(ShrinkTest, AgainAndAgainUntilOneIsLeft) {
  std::barrier all_summed(4);
  on_ranks(options_for({"a", "b", "a", "b"}), [&](Group& whole) {
    std::unique_ptr<Group> kept;
    Group* group = &whole;
    while (group->size() > 1) {
      EXPECT_EQ(sum_over(*group, 1), group->size());
      all_summed.arrive_and_wait();
      if (group->rank() == 0) {
        all_summed.arrive_and_drop();
        return group->abort("enough");
      }
      while (group->barrier()->wait()) {
      }
      auto smaller = group->shrink({});
      if (!smaller) {
        all_summed.arrive_and_drop();
        FAIL() << smaller.error().message;
      }
      EXPECT_EQ((*smaller)->size(), group->size() - 1);
      EXPECT_EQ((*smaller)->rank(), group->rank() - 1);
      EXPECT_EQ(group->shrink({}).error().code, Code::kInvalidArgument);
      kept = *std::move(smaller);
      group = kept.get();
    }
    EXPECT_EQ(sum_over(*group, 7), 7);
    EXPECT_EQ(whole.rank(), 3);
  });
}

TEST(ShrinkTest, ARankThatIsLeftOutIsToldSoHoweverLateItComes) {
  std::latch went_on(3), all_told(3);
  on_ranks(options_for(one_host(3)), [&](Group& group) {
    if (group.rank() == 1) {
      EXPECT_FALSE(group.barrier()->wait());
      went_on.arrive_and_wait();
      const auto refused = group.shrink({});
      EXPECT_FALSE(refused);
      if (!refused) {
        EXPECT_EQ(refused.error().message, "the others have gone on without this rank");
        EXPECT_EQ(refused.error().code, Code::kInvalidArgument);
      }
      return all_told.arrive_and_wait();
    }
    EXPECT_EQ(group.shrink({.without = {group.rank()}}).error().code, Code::kInvalidArgument);
    EXPECT_EQ(group.shrink({.without = {3}}).error().code, Code::kInvalidArgument);
    const auto smaller = group.shrink({.without = {1}});
    EXPECT_TRUE(smaller) << smaller.error().message;
    if (smaller) {
      EXPECT_EQ(sum_over(**smaller, 1), 2);
    }
    went_on.arrive_and_wait();
    all_told.arrive_and_wait();
  });
}

TEST(ReunionTest, TheLargerPartGoesOnAndOfEqualOnesThatWithTheLowestRank) {
  EXPECT_TRUE(is_majority({3}, {}));
  EXPECT_TRUE(is_majority({1, 2}, {0}));
  EXPECT_TRUE(is_majority({0, 3}, {1, 2}));
  EXPECT_FALSE(is_majority({1, 2}, {0, 3}));
  EXPECT_FALSE(is_majority({0}, {1, 2}));
  EXPECT_FALSE(is_majority({}, {}));
}

}  // namespace
}  // namespace yard::collective
