#include "jobs/host_watch.h"

#include <gtest/gtest.h>

namespace yard::jobs {
namespace {

using E = PlatformEvent;
using P = HostPhase;

constexpr double kNow_t = 1000;

// A host that came to `phase`, one second per phase.
HostSeen host(const std::string& name, P phase, HostOutcome outcome = HostOutcome::kNone,
              HostCause cause = HostCause::kNone) {
  HostStatus status;
  for (int i = 0; i <= static_cast<int>(phase); ++i)
    status.phases.push_back({static_cast<P>(i), 100.0 + i});
  status.phase = phase;
  status.outcome = outcome;
  status.cause = cause;
  return {
      .name = name, .life = HostLife::kStarted, .status = status, .is_alive = phase != P::kEnded};
}

HostSeen lost(const std::string& name, P phase) {
  HostSeen seen = host(name, phase);
  seen.is_alive = false;
  seen.lost_reason = "killed";
  return seen;
}

// Failed its health check: no script began.
HostSeen unhealthy(const std::string& name) {
  HostSeen seen = host(name, P::kHealth);
  seen.status->phase = P::kEnded;
  seen.status->phases.push_back({P::kEnded, 101});
  seen.status->outcome = HostOutcome::kFailed;
  seen.status->cause = HostCause::kHostFault;
  seen.is_alive = false;
  return seen;
}

JobSeen job(JobStage stage, std::vector<HostSeen> hosts, EndReason ending = EndReason::kNone) {
  return {.state = {stage, ending},
          .hosts = std::move(hosts),
          .created_t = 90,
          .queued_t = 90,
          .budgets = default_fault_budgets()};
}

std::optional<Verdict> verdict_of(const JobSeen& seen, const JobNeeds& needs = {}) {
  return judge(seen, needs, kNow_t);
}

TEST(HostWatch, AJobIsWhereItsLastHostIs) {
  EXPECT_FALSE(
      verdict_of(job(JobStage::kLaunching, {host("1", P::kTraining), host("2", P::kHealth)})));
  auto got =
      verdict_of(job(JobStage::kLaunching, {host("1", P::kTraining), host("2", P::kDownload)}));
  ASSERT_TRUE(got);
  EXPECT_EQ(got->event, E::kDownloadBegan);
  EXPECT_EQ(got->t, 101);
  EXPECT_FALSE(
      verdict_of(job(JobStage::kDownloading, {host("1", P::kTraining), host("2", P::kDownload)})));
  got = verdict_of(job(JobStage::kDownloading, {host("1", P::kTraining), host("2", P::kTraining)}));
  ASSERT_TRUE(got);
  EXPECT_EQ(got->event, E::kTrainingBegan);
  EXPECT_FALSE(
      verdict_of(job(JobStage::kTraining,
                     {host("1", P::kFinished, HostOutcome::kCompleted), host("2", P::kTraining)})));
}

TEST(HostWatch, AScriptThatFailsAtOnceHasTrainedFirst) {
  const std::vector<HostSeen> hosts = {
      host("1", P::kFinished, HostOutcome::kFailed, HostCause::kUserError)};
  EXPECT_EQ(verdict_of(job(JobStage::kLaunching, hosts))->event, E::kDownloadBegan);
  EXPECT_EQ(verdict_of(job(JobStage::kDownloading, hosts))->event, E::kTrainingBegan);
  const auto end = verdict_of(job(JobStage::kTraining, hosts));
  EXPECT_EQ(end->event, E::kFault);
  EXPECT_EQ(end->cause, FaultCause::kUserError);
  EXPECT_EQ(end->t, 104);
}

TEST(HostWatch, ALostHostDecidesOverTheErrorsThatItCauses) {
  const auto got = verdict_of(job(
      JobStage::kTraining, {host("1", P::kFinished, HostOutcome::kFailed, HostCause::kUserError),
                            lost("2", P::kTraining)}));
  ASSERT_TRUE(got);
  EXPECT_EQ(got->event, E::kRelaunch);
  EXPECT_EQ(got->cause, FaultCause::kHostFault);
  EXPECT_EQ(got->hosts, (std::vector<std::string>{"2"}));
}

TEST(HostWatch, AUserErrorDecidesOverALostPeer) {
  const auto got = verdict_of(job(
      JobStage::kTraining, {host("1", P::kFinished, HostOutcome::kFailed, HostCause::kUnavailable),
                            host("2", P::kFinished, HostOutcome::kFailed, HostCause::kUserError)}));
  EXPECT_EQ(got->event, E::kFault);
  EXPECT_EQ(got->cause, FaultCause::kUserError);
}

TEST(HostWatch, SeveralUnhealthyHostsAreReplacedTogether) {
  const auto got = verdict_of(
      job(JobStage::kDownloading, {host("1", P::kStart), unhealthy("2"), unhealthy("3")}));
  ASSERT_TRUE(got);
  EXPECT_EQ(got->event, E::kHostsFaulty);
  EXPECT_EQ(got->hosts, (std::vector<std::string>{"2", "3"}));
  auto often = job(JobStage::kLaunching, {host("1", P::kStart), unhealthy("2")});
  often.replaced_count = kReplacementsMax;
  EXPECT_EQ(verdict_of(often)->event, E::kRelaunch);
}

TEST(HostWatch, AHostThatIsLostAfterItsScriptBeganIsNotReplacedAlone) {
  EXPECT_EQ(verdict_of(job(JobStage::kDownloading, {host("1", P::kStart), lost("2", P::kTraining)}))
                ->event,
            E::kRelaunch);
}

TEST(HostWatch, AFaultBeyondItsBudgetFailsTheJobAndSaysWhy) {
  auto seen = job(JobStage::kTraining, {lost("algo-1", P::kTraining)});
  seen.used.of(FaultCause::kHostFault) = 3;
  const auto got = verdict_of(seen);
  EXPECT_EQ(got->event, E::kFault);
  EXPECT_EQ(
      got->detail,
      "InternalServerError: host algo-1: killed; its 3 relaunches after a host fault are used up");
}

TEST(HostWatch, AScriptThatSomebodyElseStoppedWasPreempted) {
  const auto got = verdict_of(job(
      JobStage::kTraining, {host("1", P::kFinished, HostOutcome::kStopped, HostCause::kStopped)}));
  EXPECT_EQ(got->event, E::kPreempted);
  EXPECT_EQ(got->cause, FaultCause::kPreemption);
}

TEST(HostWatch, TheEndWaitsForEveryScriptThenForEveryHost) {
  const auto ending = [](std::vector<HostSeen> hosts) {
    return verdict_of(job(JobStage::kEnding, std::move(hosts), EndReason::kStopAsked));
  };
  EXPECT_FALSE(ending({host("1", P::kFinished), host("2", P::kTraining)}));
  EXPECT_EQ(ending({host("1", P::kFinished), host("2", P::kFinished)})->event, E::kScriptsEnded);
  EXPECT_EQ(ending({host("1", P::kFinished), lost("2", P::kTraining)})->event, E::kScriptsEnded);
  EXPECT_EQ(ending({lost("1", P::kTraining), host("2", P::kEnded)})->event, E::kUploaded);
  HostSeen never_started{.name = "1", .life = HostLife::kHeld};
  EXPECT_EQ(ending({never_started})->event, E::kUploaded);
}

TEST(HostWatch, OnlyAWholeUploadCompletesAJob) {
  const HostSeen good = host("1", P::kEnded, HostOutcome::kCompleted);
  EXPECT_FALSE(verdict_of(job(JobStage::kUploading, {good, host("2", P::kUpload)})));
  EXPECT_EQ(verdict_of(job(JobStage::kUploading, {good, good}))->event, E::kUploaded);
  EXPECT_EQ(verdict_of(job(JobStage::kUploading, {good, lost("2", P::kUpload)}))->event, E::kFault);
  EXPECT_EQ(
      verdict_of(job(JobStage::kUploading, {good, lost("2", P::kUpload)}, EndReason::kStopAsked))
          ->event,
      E::kUploaded);
}

TEST(HostWatch, LimitsOfTimeEndAJob) {
  JobNeeds needs;
  needs.max_runtime_s = 60;
  auto trains = job(JobStage::kTraining, {host("1", P::kTraining)});
  trains.active_s = 60;
  EXPECT_FALSE(verdict_of(trains, needs));
  trains.active_s = 60.1;
  EXPECT_EQ(verdict_of(trains, needs)->event, E::kRuntimeOver);
  auto waits = job(JobStage::kQueued, {});
  EXPECT_FALSE(verdict_of(waits, needs));
  needs.max_pending_s = kNow_t - 90 - 1;
  EXPECT_EQ(verdict_of(waits, needs)->event, E::kPendingOver);
  EXPECT_FALSE(verdict_of(job(JobStage::kTraining, {host("1", P::kTraining)}), needs));
  needs.max_wait_s = kNow_t - 90 - 1;
  EXPECT_EQ(verdict_of(job(JobStage::kTraining, {host("1", P::kTraining)}), needs)->event,
            E::kWaitOver);
  trains.state.stage = JobStage::kUploading;
  EXPECT_FALSE(verdict_of(trains, needs)) << "results are uploaded all the same";
}

TEST(HostWatch, TimesAreNotAfterNow) {
  auto fast = host("1", P::kDownload);
  fast.status->phases.back().t = kNow_t + 50;
  EXPECT_EQ(verdict_of(job(JobStage::kLaunching, {fast}))->t, kNow_t);
}

}  // namespace
}  // namespace yard::jobs
