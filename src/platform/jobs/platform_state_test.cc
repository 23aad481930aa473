#include "jobs/platform_state.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <tuple>
#include <vector>

namespace yard::jobs {
namespace {

using enum JobStage;
using E = PlatformEvent;
using R = EndReason;

struct Row {
  JobStage from;
  E event;
  PlatformState next;
  Work work;
  std::string_view secondary;
};

// Every transition that there is, for a job whose scripts are not being ended. All others are
// refused, which the next test looks at pair by pair.
const std::vector<Row>& rows() {
  static const std::vector<Row> rows = [] {
    std::vector<Row> rows = {
        {kQueued, E::kNoHosts, {kQueued, R::kNone}, Work::kPlace, "Pending"},
        {kQueued, E::kPlaced, {kLaunching, R::kNone}, Work::kStartHosts, "Starting"},
        {kQueued, E::kFault, {kFailed, R::kFailure}, Work::kRelease, "Failed"},
        {kQueued, E::kStopAsked, {kStopped, R::kStopAsked}, Work::kRelease, "Stopped"},
        {kQueued,
         E::kRuntimeOver,
         {kStopped, R::kMaxRuntime},
         Work::kRelease,
         "MaxRuntimeExceeded"},
        {kQueued, E::kWaitOver, {kStopped, R::kMaxWait}, Work::kRelease, "MaxWaitTimeExceeded"},
        {kQueued, E::kPendingOver, {kFailed, R::kMaxPending}, Work::kRelease, "Failed"},
        {kLaunching, E::kDownloadBegan, {kDownloading, R::kNone}, Work::kNone, "Downloading"},
        {kLaunching, E::kTrainingBegan, {kTraining, R::kNone}, Work::kNone, "Training"},
        {kDownloading, E::kTrainingBegan, {kTraining, R::kNone}, Work::kNone, "Training"},
        {kTraining, E::kScriptsDone, {kUploading, R::kNone}, Work::kUpload, "Uploading"},
        {kRestarting, E::kHostsCleared, {kQueued, R::kNone}, Work::kPlace, "Starting"},
        {kUploading, E::kUploaded, {kCompleted, R::kNone}, Work::kRelease, "Completed"},
        {kUploading, E::kFault, {kFailed, R::kFailure}, Work::kRelease, "Failed"},
        {kEnding, E::kScriptsEnded, {kUploading, R::kNone}, Work::kUpload, "Uploading"},
        {kEnding, E::kUploaded, {kCompleted, R::kNone}, Work::kRelease, "Completed"},
    };
    for (const JobStage stage : {kLaunching, kDownloading}) {
      rows.push_back({stage, E::kHostsFaulty, {stage, R::kNone}, Work::kReplaceHosts, ""});
      rows.push_back({stage, E::kHostsReplaced, {stage, R::kNone}, Work::kStartHosts, ""});
    }
    for (const JobStage stage : {kLaunching, kDownloading, kTraining}) {
      rows.push_back(
          {stage, E::kRelaunch, {kRestarting, R::kNone}, Work::kClearHosts, "Restarting"});
      rows.push_back(
          {stage, E::kPreempted, {kRestarting, R::kNone}, Work::kClearHosts, "Interrupted"});
    }
    for (const JobStage stage : {kLaunching, kDownloading, kTraining, kRestarting}) {
      rows.push_back({stage, E::kFault, {kEnding, R::kFailure}, Work::kKillScripts, ""});
      rows.push_back(
          {stage, E::kStopAsked, {kEnding, R::kStopAsked}, Work::kStopScripts, "Stopping"});
      rows.push_back(
          {stage, E::kRuntimeOver, {kEnding, R::kMaxRuntime}, Work::kStopScripts, "Stopping"});
      rows.push_back({stage, E::kWaitOver, {kEnding, R::kMaxWait}, Work::kStopScripts, "Stopping"});
    }
    return rows;
  }();
  return rows;
}

TEST(PlatformState, EveryTransitionLeadsWhereTheTableSays) {
  for (const Row& row : rows()) {
    const auto got = advance_platform({row.from, R::kNone}, row.event);
    ASSERT_TRUE(got) << to_string(row.from) << " " << to_string(row.event);
    EXPECT_EQ(got->next, row.next) << to_string(row.from) << " " << to_string(row.event);
    EXPECT_EQ(got->work, row.work) << to_string(row.from) << " " << to_string(row.event);
    EXPECT_EQ(got->secondary, row.secondary) << to_string(row.from) << " " << to_string(row.event);
    EXPECT_EQ(got->message.empty(), row.secondary.empty());
  }
}

TEST(PlatformState, EveryOtherPairIsRefused) {
  std::set<std::pair<JobStage, E>> allowed;
  for (const Row& row : rows()) allowed.emplace(row.from, row.event);
  for (int stage = 0; stage < kJobStageCount; ++stage) {
    for (int event = 0; event < kPlatformEventCount; ++event) {
      const auto pair = std::pair(static_cast<JobStage>(stage), static_cast<E>(event));
      if (allowed.contains(pair)) continue;
      const auto got = advance_platform({pair.first, R::kNone}, pair.second);
      ASSERT_FALSE(got) << to_string(pair.first) << " " << to_string(pair.second);
      EXPECT_EQ(got.error().code, Code::kInvalidArgument);
    }
  }
}

TEST(PlatformState, TheReasonOfAnEndIsKeptAndDecidesIt) {
  const std::vector<std::tuple<R, JobStage, std::string_view>> ends = {
      {R::kFailure, kFailed, "Failed"},
      {R::kStopAsked, kStopped, "Stopped"},
      {R::kMaxRuntime, kStopped, "MaxRuntimeExceeded"},
      {R::kMaxWait, kStopped, "MaxWaitTimeExceeded"}};
  for (const auto& [reason, stage, secondary] : ends) {
    const auto uploading = advance_platform({kEnding, reason}, E::kScriptsEnded);
    ASSERT_TRUE(uploading);
    EXPECT_EQ(uploading->next, (PlatformState{kUploading, reason}));
    for (const JobStage from : {kEnding, kUploading}) {
      const auto end = advance_platform({from, reason}, E::kUploaded);
      ASSERT_TRUE(end);
      EXPECT_EQ(end->next, (PlatformState{stage, reason}));
      EXPECT_EQ(end->secondary, secondary);
    }
    // An upload that fails takes nothing from a stop.
    EXPECT_EQ(advance_platform({kUploading, reason}, E::kFault)->next.stage, stage);
  }
}

TEST(PlatformState, ThePrimaryStatusFollows) {
  EXPECT_EQ(primary_status({kQueued, R::kNone}), "InProgress");
  EXPECT_EQ(primary_status({kRestarting, R::kNone}), "InProgress");
  EXPECT_EQ(primary_status({kEnding, R::kFailure}), "InProgress");
  EXPECT_EQ(primary_status({kEnding, R::kStopAsked}), "Stopping");
  EXPECT_EQ(primary_status({kUploading, R::kMaxRuntime}), "Stopping");
  EXPECT_EQ(primary_status({kUploading, R::kNone}), "InProgress");
  EXPECT_EQ(primary_status({kCompleted, R::kNone}), "Completed");
  EXPECT_EQ(primary_status({kFailed, R::kFailure}), "Failed");
  EXPECT_EQ(primary_status({kStopped, R::kMaxRuntime}), "Stopped");
}

TEST(PlatformState, WordsComeBack) {
  for (int i = 0; i < kJobStageCount; ++i)
    EXPECT_EQ(job_stage_from(to_string(static_cast<JobStage>(i))), static_cast<JobStage>(i));
  for (int i = 0; i < kEndReasonCount; ++i)
    EXPECT_EQ(end_reason_from(to_string(static_cast<R>(i))), static_cast<R>(i));
  for (int i = 0; i < kPlatformEventCount; ++i)
    EXPECT_EQ(platform_event_from(to_string(static_cast<E>(i))), static_cast<E>(i));
  for (int i = 0; i < kWorkCount; ++i)
    EXPECT_EQ(work_from(to_string(static_cast<Work>(i))), static_cast<Work>(i));
  EXPECT_FALSE(job_stage_from("Queued"));
}

}  // namespace
}  // namespace yard::jobs
