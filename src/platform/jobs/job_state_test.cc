// The table is the specification: one row per accepted (state, event). Every pair without a row
// must be refused, and the last test checks exactly that.
#include "jobs/job_state.h"

#include <gtest/gtest.h>

#include <set>
#include <utility>

namespace yard::jobs {
namespace {

using S = JobState;
using E = JobEvent;

// clang-format off
struct Row { S from; E event; int retries_left; S to; Action action; };
constexpr Row kTable[] = {
    {S::kQueued,     E::kPlaced,         0, S::kStarting,   Action::kStartSupervisor},
    {S::kQueued,     E::kStopAsked,      0, S::kStopped,    Action::kRelease},
    {S::kQueued,     E::kSupervisorLost, 1, S::kFailed,     Action::kRelease},
    {S::kStarting,   E::kRanksStarted,   0, S::kRunning,    Action::kNone},
    {S::kStarting,   E::kRankFault,      1, S::kRestarting, Action::kRelaunchRanks},
    {S::kStarting,   E::kRankFault,      0, S::kFailed,     Action::kRelease},
    {S::kStarting,   E::kUserFault,      1, S::kFailed,     Action::kRelease},
    {S::kStarting,   E::kStopAsked,      1, S::kStopping,   Action::kStopRanks},
    {S::kStarting,   E::kSupervisorLost, 1, S::kFailed,     Action::kRelease},
    {S::kRunning,    E::kRankFault,      1, S::kRestarting, Action::kRelaunchRanks},
    {S::kRunning,    E::kRankFault,      0, S::kFailed,     Action::kRelease},
    {S::kRunning,    E::kUserFault,      1, S::kFailed,     Action::kRelease},
    {S::kRunning,    E::kAllDone,        0, S::kSucceeded,  Action::kRelease},
    {S::kRunning,    E::kRanksStopped,   1, S::kStopped,    Action::kRelease},
    {S::kRunning,    E::kStopAsked,      1, S::kStopping,   Action::kStopRanks},
    {S::kRunning,    E::kSupervisorLost, 1, S::kFailed,     Action::kRelease},
    {S::kRestarting, E::kRanksStarted,   0, S::kRunning,    Action::kNone},
    {S::kRestarting, E::kRankFault,      1, S::kRestarting, Action::kRelaunchRanks},
    {S::kRestarting, E::kRankFault,      0, S::kFailed,     Action::kRelease},
    {S::kRestarting, E::kUserFault,      1, S::kFailed,     Action::kRelease},
    {S::kRestarting, E::kStopAsked,      1, S::kStopping,   Action::kStopRanks},
    {S::kRestarting, E::kSupervisorLost, 1, S::kFailed,     Action::kRelease},
    {S::kStopping,   E::kRanksStopped,   0, S::kStopped,    Action::kRelease},
    {S::kStopping,   E::kAllDone,        0, S::kSucceeded,  Action::kRelease},
    {S::kStopping,   E::kUserFault,      1, S::kFailed,     Action::kRelease},
    {S::kStopping,   E::kRankFault,      1, S::kStopping,   Action::kKillRanks},
    {S::kStopping,   E::kRankFault,      0, S::kStopping,   Action::kKillRanks},
    {S::kStopping,   E::kStopAsked,      1, S::kStopping,   Action::kKillRanks},
    {S::kStopping,   E::kSupervisorLost, 1, S::kFailed,     Action::kRelease},
    {S::kFailed,     E::kResumeAsked,    0, S::kQueued,     Action::kAcquireHosts},
    {S::kStopped,    E::kResumeAsked,    0, S::kQueued,     Action::kAcquireHosts},
};
// clang-format on

TEST(JobStateTest, EveryRowOfTheTableHolds) {
  for (const Row& row : kTable) {
    const auto got = advance(row.from, row.event, row.retries_left);
    ASSERT_TRUE(got) << got.error().message;
    EXPECT_EQ(got->next, row.to) << to_string(row.from) << " " << to_string(row.event);
    EXPECT_EQ(got->action, row.action) << to_string(row.from) << " " << to_string(row.event);
  }
}

TEST(JobStateTest, EveryPairOutsideTheTableIsRefused) {
  std::set<std::pair<S, E>> accepted;
  for (const Row& row : kTable) accepted.insert({row.from, row.event});
  for (int s = 0; s < kJobStateCount; ++s) {
    for (int e = 0; e < kJobEventCount; ++e) {
      const auto pair = std::pair(static_cast<S>(s), static_cast<E>(e));
      if (accepted.contains(pair)) continue;
      const auto got = advance(pair.first, pair.second, 1);
      ASSERT_FALSE(got) << to_string(pair.first) << " accepted " << to_string(pair.second);
      EXPECT_EQ(got.error().code, Code::kInvalidArgument);
    }
  }
}

TEST(JobStateTest, OnlyTheRankFaultLooksAtTheRetriesLeft) {
  for (int s = 0; s < kJobStateCount; ++s) {
    for (int e = 0; e < kJobEventCount; ++e) {
      if (static_cast<E>(e) == E::kRankFault) continue;
      const auto none = advance(static_cast<S>(s), static_cast<E>(e), 0);
      const auto some = advance(static_cast<S>(s), static_cast<E>(e), 7);
      ASSERT_EQ(none.has_value(), some.has_value());
      if (!none) continue;
      EXPECT_EQ(*none, *some);
    }
  }
}

TEST(JobStateTest, NamesAreReadBack) {
  for (int s = 0; s < kJobStateCount; ++s)
    EXPECT_EQ(job_state_from(to_string(static_cast<S>(s))), static_cast<S>(s));
  for (int e = 0; e < kJobEventCount; ++e)
    EXPECT_EQ(job_event_from(to_string(static_cast<E>(e))), static_cast<E>(e));
  for (int a = 0; a < kActionCount; ++a)
    EXPECT_EQ(action_from(to_string(static_cast<Action>(a))), static_cast<Action>(a));
  EXPECT_FALSE(job_state_from("runing"));
  EXPECT_FALSE(job_event_from(""));
  EXPECT_FALSE(action_from("launch"));
}

}  // namespace
}  // namespace yard::jobs
