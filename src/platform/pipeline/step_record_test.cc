#include "pipeline/step_record.h"

#include <gtest/gtest.h>

namespace yard::pipeline {
namespace {

using Kind = jobs::SupervisorEventKind;

std::vector<Kind> kinds(const std::vector<jobs::SupervisorEvent>& events) {
  std::vector<Kind> out;
  for (const auto& event : events) out.push_back(event.kind);
  return out;
}

TEST(StepRecord, AJobThatRestartedHasAFaultAndARecovery) {
  const JobSight job{.end = JobEnd::kCompleted,
                     .started_t = 100,
                     .ended_t = 200,
                     .changes = {{"Training", "", 110},
                                 {"Restarting", "", 151},
                                 {"Training", "", 160},
                                 {"Uploading", "", 190}}};
  const std::vector<std::string> launches = {
      R"({"t": 149, "event": "chaos_kill", "rank": 1, "global_step": 7})",
      R"({"t": 150, "event": "rank_exited", "rank": 1, "code": 137, "signal": 9})",
      R"({"t": 150.5, "event": "rank_exited", "rank": 0, "code": 6, "signal": 0})", "garbage"};
  const auto events = events_of_jobs({job}, launches, {120, 130, 170, 180});
  ASSERT_EQ(kinds(events),
            (std::vector<Kind>{Kind::kSupervisorStarted, Kind::kAttemptStarted, Kind::kChaosKill,
                               Kind::kFault, Kind::kRelaunched, Kind::kAttemptStarted,
                               Kind::kRecovered, Kind::kEnded}));
  EXPECT_EQ(events[3].t, 150);
  EXPECT_EQ(events[3].detail, "rank 1 was killed by signal 9");
  EXPECT_EQ(events[6].recovery_s, 20);
  EXPECT_EQ(events[7].state, "succeeded");
}

TEST(StepRecord, AJobAfterOneThatFailedIsItsNextAttempt) {
  const JobSight first{
      .end = JobEnd::kFailed, .started_t = 10, .ended_t = 20, .changes = {{"Training", "", 12}}};
  const JobSight second{
      .end = JobEnd::kCompleted, .started_t = 30, .ended_t = 50, .changes = {{"Training", "", 32}}};
  const auto events = events_of_jobs({first, second}, {}, {15, 40});
  ASSERT_EQ(kinds(events),
            (std::vector<Kind>{Kind::kSupervisorStarted, Kind::kAttemptStarted, Kind::kFault,
                               Kind::kRelaunched, Kind::kAttemptStarted, Kind::kRecovered,
                               Kind::kEnded}));
  EXPECT_EQ(events[2].t, 20);
  EXPECT_EQ(events[5].recovery_s, 20);
}

TEST(StepRecord, StopsAtAStagesEndAreNoFaults) {
  const JobSight job{
      .end = JobEnd::kCompleted, .started_t = 1, .ended_t = 9, .changes = {{"Training", "", 2}}};
  const auto events = events_of_jobs(
      {job}, {R"({"t": 8, "event": "rank_exited", "rank": 0, "code": 8, "signal": 0})"}, {});
  EXPECT_EQ(kinds(events),
            (std::vector<Kind>{Kind::kSupervisorStarted, Kind::kAttemptStarted, Kind::kEnded}));
  EXPECT_TRUE(events_of_jobs({}, {}, {}).empty());
}

TEST(StepRecord, StartsAreNumbered) {
  const std::string text =
      "{\"event\":\"start\",\"attempt\":0,\"t\":1}\nnot json\n"
      "{\"event\":\"start\",\"attempt\":0,\"t\":2}\n{\"event\":\"cut";
  EXPECT_EQ(number_attempts(text),
            "{\"attempt\":0,\"event\":\"start\",\"t\":1}\nnot json\n"
            "{\"attempt\":1,\"event\":\"start\",\"t\":2}\n");
}

}  // namespace
}  // namespace yard::pipeline
