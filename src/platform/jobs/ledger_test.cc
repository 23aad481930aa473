#include "jobs/ledger.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "base/random.h"

namespace yard::jobs {
namespace {

using Kind = SupervisorEventKind;

SupervisorEvent event(double t, Kind kind, std::string state = "") {
  SupervisorEvent e{.t = t, .kind = kind};
  e.state = std::move(state);
  return e;
}
Heartbeat start(double t) {
  Heartbeat h;
  h.t = t;
  return h;
}
Heartbeat phase(double t, Phase phase) {
  Heartbeat h;
  h.t = t;
  h.event = HeartbeatEvent::kPhase;
  h.phase = phase;
  return h;
}
// A step of 1 s: 0.7 compute, 0.2 data, 0.05 communication, 0.05 that nobody claims.
Heartbeat step(double t, int64_t global_step) {
  Heartbeat h;
  h.t = t;
  h.event = HeartbeatEvent::kStep;
  h.global_step = global_step;
  h.step_s = 1;
  h.compute_s = 0.7;
  h.data_wait_s = 0.2;
  h.comm_wait_s = 0.05;
  return h;
}
Heartbeat at_step(double t, HeartbeatEvent kind, int64_t global_step) {
  Heartbeat h;
  h.t = t;
  h.event = kind;
  h.global_step = global_step;
  return h;
}

double sum(const Ledger& ledger) {
  return std::accumulate(ledger.parts_s.begin(), ledger.parts_s.end(), 0.0);
}

TEST(LedgerTest, AnUndisturbedRunIsSplitSecondBySecond) {
  const std::vector<Heartbeat> rank = {start(101),
                                       phase(101.5, Phase::kTrain),
                                       step(105, 1),  // began at 104
                                       step(106, 2),
                                       phase(106, Phase::kCheckpoint),
                                       at_step(108, HeartbeatEvent::kCheckpoint, 2),
                                       phase(108, Phase::kEvaluate),
                                       phase(111, Phase::kSample),
                                       phase(112, Phase::kTrain),
                                       step(114, 3),  // began at 113: one second is nobody's
                                       phase(114, Phase::kFinish)};
  const Ledger ledger =
      compute_ledger({event(100, Kind::kSupervisorStarted), event(100.5, Kind::kAttemptStarted),
                      event(116, Kind::kEnded, "succeeded")},
                     {rank}, 3600, 999);
  EXPECT_DOUBLE_EQ(ledger.wall_s, 16);
  EXPECT_NEAR(ledger.part_s(Part::kStartup), 4, 1e-9);
  EXPECT_NEAR(ledger.part_s(Part::kProductive), 2.1, 1e-9);
  EXPECT_NEAR(ledger.part_s(Part::kDataWait), 0.6, 1e-9);
  EXPECT_NEAR(ledger.part_s(Part::kCommWait), 0.15, 1e-9);
  EXPECT_NEAR(ledger.part_s(Part::kCheckpoint), 2 + 2, 1e-9);
  EXPECT_NEAR(ledger.part_s(Part::kEvaluation), 4, 1e-9);
  EXPECT_NEAR(ledger.part_s(Part::kOther), 1 + 0.15, 1e-9);
  EXPECT_EQ(ledger.part_s(Part::kLostWork), 0);
  EXPECT_EQ(ledger.part_s(Part::kRecovery), 0);
  EXPECT_TRUE(ledger.complete);
  EXPECT_NEAR(ledger.utilisation(), 2.1 / 16, 1e-12);
  EXPECT_DOUBLE_EQ(ledger.cost_of(ledger.wall_s), 16);
}

TEST(LedgerTest, ADeathCostsLostWorkAndRecovery) {
  const std::vector<Heartbeat> rank = {
      start(100),
      step(102, 1),
      at_step(102, HeartbeatEvent::kCheckpoint, 1),
      step(103, 2),
      step(104, 3),  // 2 and 3 are lost, and half a second of step 4
      start(105),
      at_step(105.5, HeartbeatEvent::kResume, 1),
      step(107, 2),  // began at 106
  };
  const Ledger ledger =
      compute_ledger({event(100, Kind::kSupervisorStarted), event(100, Kind::kAttemptStarted),
                      event(104.5, Kind::kFault), event(104.75, Kind::kAttemptStarted),
                      event(104.75, Kind::kRelaunched), event(107, Kind::kEnded, "succeeded")},
                     {{rank}}, 0, 107);
  EXPECT_DOUBLE_EQ(ledger.wall_s, 7);
  EXPECT_NEAR(ledger.part_s(Part::kStartup), 1, 1e-9);
  EXPECT_NEAR(ledger.part_s(Part::kProductive), 1.4, 1e-9);
  EXPECT_NEAR(ledger.part_s(Part::kLostWork), 2 + 0.5, 1e-9);
  EXPECT_NEAR(ledger.part_s(Part::kRecovery), 1.5, 1e-9);
  EXPECT_EQ(ledger.restarts, 1);
  EXPECT_EQ(ledger.lost_steps, 2);
  EXPECT_NEAR(sum(ledger), ledger.wall_s, 1e-9);
}

TEST(LedgerTest, WithoutACheckpointEverythingIsRedone) {
  const std::vector<Heartbeat> rank = {start(0.5), step(2, 1), step(3, 2), start(5), step(7, 1)};
  const Ledger ledger =
      compute_ledger({event(0.25, Kind::kSupervisorStarted), event(0.25, Kind::kAttemptStarted),
                      event(3, Kind::kFault), event(4, Kind::kAttemptStarted)},
                     {{rank}}, 0, 7);
  EXPECT_NEAR(ledger.part_s(Part::kLostWork), 2, 1e-9);
  EXPECT_NEAR(ledger.part_s(Part::kProductive), 0.7, 1e-9);
  EXPECT_FALSE(ledger.complete);
}

TEST(LedgerTest, AJobThatFailsLosesWhatNoCheckpointHolds) {
  const std::vector<Heartbeat> rank = {start(0.5), step(2, 1),
                                       at_step(2, HeartbeatEvent::kCheckpoint, 1), step(3, 2)};
  const Ledger ledger =
      compute_ledger({event(0.25, Kind::kSupervisorStarted), event(0.25, Kind::kAttemptStarted),
                      event(3, Kind::kFault), event(3, Kind::kEnded, "failed")},
                     {{rank}}, 0, 3);
  EXPECT_NEAR(ledger.part_s(Part::kLostWork), 1, 1e-9);
  EXPECT_NEAR(ledger.part_s(Part::kProductive), 0.7, 1e-9);
}

TEST(LedgerTest, TimeBetweenAStopAndAResumeIsNotTheJobs) {
  const std::vector<Heartbeat> rank = {start(10), step(12, 1), start(1001), step(1003, 2)};
  const Ledger ledger =
      compute_ledger({event(10, Kind::kSupervisorStarted), event(10, Kind::kAttemptStarted),
                      event(13, Kind::kEnded, "stopped"), event(1000, Kind::kSupervisorStarted),
                      event(1000, Kind::kAttemptStarted), event(1003, Kind::kEnded, "succeeded")},
                     {{rank}}, 0, 2000);
  EXPECT_DOUBLE_EQ(ledger.wall_s, 6);
  EXPECT_NEAR(ledger.part_s(Part::kProductive), 1.4, 1e-9);
  EXPECT_NEAR(ledger.part_s(Part::kStartup), 1 + 2, 1e-9);
  EXPECT_NEAR(sum(ledger), 6, 1e-9);
}

TEST(LedgerTest, ASupervisorThatVanishedEndsWithTheLastSignOfLife) {
  const std::vector<Heartbeat> rank = {start(10), step(12, 1), start(1001), step(1003, 2)};
  const Ledger ledger =
      compute_ledger({event(10, Kind::kSupervisorStarted), event(10, Kind::kAttemptStarted),
                      event(1000, Kind::kSupervisorStarted), event(1000, Kind::kAttemptStarted),
                      event(1003, Kind::kEnded, "succeeded")},
                     {{rank}}, 0, 2000);
  EXPECT_DOUBLE_EQ(ledger.wall_s, 2 + 3);
  EXPECT_NEAR(sum(ledger), 5, 1e-9);
}

TEST(LedgerTest, ARankThatTellsNothingIsOther) {
  const Ledger ledger =
      compute_ledger({event(10, Kind::kSupervisorStarted), event(11, Kind::kAttemptStarted),
                      event(15, Kind::kEnded, "succeeded")},
                     {{}, {}}, 0, 15);
  EXPECT_NEAR(ledger.part_s(Part::kStartup), 1, 1e-9);
  EXPECT_NEAR(ledger.part_s(Part::kOther), 4, 1e-9);
}

TEST(LedgerTest, ClaimsOfMoreThanTheStepLastedAreScaledDown) {
  Heartbeat boast = step(12, 1);
  boast.compute_s = 30;
  boast.data_wait_s = 10;
  boast.comm_wait_s = 0;
  const Ledger ledger =
      compute_ledger({event(10, Kind::kSupervisorStarted), event(10, Kind::kAttemptStarted)},
                     {{start(10), boast}}, 0, 12);
  EXPECT_NEAR(ledger.part_s(Part::kProductive), 0.75, 1e-9);
  EXPECT_NEAR(ledger.part_s(Part::kDataWait), 0.25, 1e-9);
  EXPECT_NEAR(sum(ledger), 2, 1e-9);
}

TEST(LedgerTest, BlockedSecondsOfACheckpointWithoutPhasesAreItsOwn) {
  Heartbeat saved = at_step(14, HeartbeatEvent::kCheckpoint, 1);
  saved.blocked_s = 1.5;
  const Ledger ledger =
      compute_ledger({event(10, Kind::kSupervisorStarted), event(10, Kind::kAttemptStarted)},
                     {{start(10), step(12, 1), saved}}, 0, 14);
  EXPECT_NEAR(ledger.part_s(Part::kCheckpoint), 1.5, 1e-9);
  EXPECT_NEAR(ledger.part_s(Part::kStartup), 1, 1e-9);
}

// Whatever order, overlap or nonsense is told, every second is in exactly one part.
TEST(LedgerTest, ThePartsAddUpForAnyEvents) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    uint64_t draw = 0;
    const auto pick = [&](uint64_t bound) { return random_below(bound, seed, 1, draw++); };
    std::vector<SupervisorEvent> events = {event(50, Kind::kSupervisorStarted)};
    constexpr Kind kKinds[] = {Kind::kAttemptStarted, Kind::kFault, Kind::kRankExited,
                               Kind::kRelaunched, Kind::kSupervisorStarted};
    for (int i = 0; i < 8; ++i)
      events.push_back(event(50 + static_cast<double>(pick(1000)) / 10, kKinds[pick(5)]));
    std::vector<std::vector<Heartbeat>> ranks(3);
    for (auto& rank : ranks) {
      for (int i = 0; i < 60; ++i) {
        Heartbeat h =
            step(40 + static_cast<double>(pick(1200)) / 10, 1 + static_cast<int64_t>(pick(20)));
        h.event = static_cast<HeartbeatEvent>(pick(10));
        h.phase = static_cast<Phase>(pick(6));
        h.step_s = static_cast<double>(pick(40)) / 10;
        h.blocked_s = static_cast<double>(pick(30)) / 10;
        rank.push_back(h);
      }
      std::ranges::stable_sort(rank, {}, &Heartbeat::t);
    }
    if (pick(2) == 0)
      events.push_back(event(170, Kind::kEnded, pick(2) == 0 ? "failed" : "stopped"));
    const Ledger ledger = compute_ledger(events, ranks, 1, 180);
    ASSERT_NEAR(sum(ledger), ledger.wall_s, 1e-6) << "seed " << seed;
    for (const double part : ledger.parts_s) ASSERT_GE(part, 0) << "seed " << seed;
  }
}

TEST(LedgerTest, JsonIsReadBack) {
  Ledger ledger;
  ledger.wall_s = 9;
  ledger.ranks = 2;
  ledger.restarts = 1;
  ledger.lost_steps = 4;
  ledger.price_per_host_hour = 1.5;
  ledger.complete = true;
  for (size_t i = 0; i < kPartCount; ++i) ledger.parts_s[i] = static_cast<double>(i) / 4;
  const auto back = ledger_from_json(to_json(ledger), "ledger.json");
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(to_json(*back), to_json(ledger));
  EXPECT_FALSE(ledger_from_json(Json::object(), "ledger.json"));
}

}  // namespace
}  // namespace yard::jobs
