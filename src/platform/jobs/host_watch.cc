#include "jobs/host_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "jobs/enum_names_internal.h"

namespace yard::jobs {
namespace {

constexpr std::array<std::string_view, kHostLifeCount> kLifeNames = {"wanted",   "held", "started",
                                                                     "clearing", "kept", "free"};

bool is_at(const HostSeen& host, HostPhase phase) {
  return host.status && host.status->phase >= phase;
}

bool is_over(const HostSeen& host) {
  return !host.is_alive || is_at(host, HostPhase::kEnded);
}

bool began_script(const HostSeen& host) {
  return host.status && std::ranges::any_of(host.status->phases, [](const PhaseChange& change) {
           return change.phase == HostPhase::kTraining;
         });
}

// The time at which the last of the hosts came to `phase`.
double last_time(const std::vector<HostSeen>& hosts, HostPhase phase, double now_t) {
  double t = 0;
  for (const auto& host : hosts)
    if (host.status) t = std::max(t, time_of(*host.status, phase).value_or(0));
  return t > 0 ? std::min(t, now_t) : now_t;
}

struct Failure {
  const HostSeen* host = nullptr;
  FaultCause cause = FaultCause::kHostFault;
  double t = 0;
};

FaultCause cause_of(const HostStatus& status) {
  if (status.outcome == HostOutcome::kStopped) return FaultCause::kPreemption;
  if (status.outcome == HostOutcome::kNone) return FaultCause::kHostFault;
  switch (status.cause) {
    case HostCause::kHostFault:
      return FaultCause::kHostFault;
    case HostCause::kUnavailable:
      return FaultCause::kUnavailable;
    case HostCause::kStopped:
      return FaultCause::kPreemption;
    case HostCause::kHang:
      return FaultCause::kHang;
    case HostCause::kUserError:
    case HostCause::kNone:
      return FaultCause::kUserError;
  }
  YARD_UNREACHABLE();
}

std::optional<Failure> failure_of(const HostSeen& host, double now_t) {
  if (host.life != HostLife::kStarted) return std::nullopt;
  if (is_at(host, HostPhase::kFinished) && host.status->outcome != HostOutcome::kCompleted) {
    const double t = time_of(*host.status, HostPhase::kFinished).value_or(now_t);
    return Failure{&host, cause_of(*host.status), std::min(t, now_t)};
  }
  if (!host.is_alive && !is_at(host, HostPhase::kEnded))
    return Failure{&host, FaultCause::kHostFault, now_t};
  return std::nullopt;
}

// One fault drags others along: peers lose their connection. So a lost host decides, then a host
// that was taken away, then a script's own error, then the word of one that lost something.
int weight(FaultCause cause) {
  switch (cause) {
    case FaultCause::kHostFault:
      return 0;
    case FaultCause::kPreemption:
      return 1;
    case FaultCause::kHang:
      return 2;
    case FaultCause::kUserError:
      return 3;
    case FaultCause::kUnavailable:
      return 4;
  }
  YARD_UNREACHABLE();
}

std::vector<Failure> failures_of(const JobSeen& job, double now_t) {
  std::vector<Failure> failures;
  for (const auto& host : job.hosts)
    if (const auto failure = failure_of(host, now_t)) failures.push_back(*failure);
  std::ranges::stable_sort(failures, [](const Failure& a, const Failure& b) {
    return std::pair(weight(a.cause), a.t) < std::pair(weight(b.cause), b.t);
  });
  return failures;
}

std::string reason_of(const Failure& failure) {
  const HostSeen& host = *failure.host;
  if (host.status && !host.status->failure_reason.empty()) return host.status->failure_reason;
  if (failure.cause == FaultCause::kUserError)
    return fmt::format("AlgorithmError: , exit code: {}", host.status->exit_code);
  return fmt::format("InternalServerError: host {}: {}", host.name,
                     host.lost_reason.empty() ? "its supervisor is gone" : host.lost_reason);
}

std::vector<std::string> names_of(const std::vector<Failure>& failures, FaultCause cause) {
  std::vector<std::string> names;
  for (const auto& failure : failures)
    if (failure.cause == cause) names.push_back(failure.host->name);
  return names;
}

// Hosts that are at fault before their script began are replaced; the others keep what they have.
std::optional<Verdict> judge_replacement(const JobSeen& job, const std::vector<Failure>& failures,
                                         double now_t) {
  if (job.state.stage == JobStage::kTraining) return std::nullopt;
  const bool all_early = std::ranges::all_of(failures, [](const Failure& failure) {
    return failure.cause == FaultCause::kHostFault && !began_script(*failure.host);
  });
  const auto count = static_cast<int>(failures.size());
  if (!all_early || job.replaced_count + count > kReplacementsMax) return std::nullopt;
  return Verdict{.event = PlatformEvent::kHostsFaulty,
                 .t = now_t,
                 .detail = reason_of(failures.front()),
                 .cause = FaultCause::kHostFault,
                 .hosts = names_of(failures, FaultCause::kHostFault),
                 .exit_code = {}};
}

Verdict judge_failures(const JobSeen& job, const std::vector<Failure>& failures, double now_t) {
  if (auto replacement = judge_replacement(job, failures, now_t)) return *replacement;
  const Failure& decisive = failures.front();
  const auto decision = decide_relaunch(decisive.cause, job.budgets, job.used);
  Verdict verdict{.event = PlatformEvent::kFault,
                  .t = decisive.t,
                  .detail = reason_of(decisive),
                  .cause = decisive.cause,
                  .hosts = names_of(failures, FaultCause::kHostFault),
                  .exit_code = {}};
  if (decisive.host->status && is_at(*decisive.host, HostPhase::kFinished))
    verdict.exit_code = decisive.host->status->exit_code;
  if (decision.relaunch) {
    const bool taken = decisive.cause == FaultCause::kPreemption;
    verdict.event = taken ? PlatformEvent::kPreempted : PlatformEvent::kRelaunch;
  } else if (decisive.cause != FaultCause::kUserError) {
    verdict.detail += "; " + decision.why_not;
  }
  return verdict;
}

bool all_at(const JobSeen& job, HostPhase phase) {
  return std::ranges::all_of(job.hosts, [&](const HostSeen& host) {
    return host.life == HostLife::kStarted && is_at(host, phase);
  });
}

Verdict progress(PlatformEvent event, double t) {
  return {.event = event, .t = t, .detail = "", .cause = {}, .hosts = {}, .exit_code = {}};
}

std::optional<Verdict> judge_working(const JobSeen& job, double now_t) {
  const JobStage stage = job.state.stage;
  const auto reached = [&](HostPhase phase, PlatformEvent event) -> std::optional<Verdict> {
    if (!all_at(job, phase)) return std::nullopt;
    return progress(event, last_time(job.hosts, phase, now_t));
  };
  const auto failures = failures_of(job, now_t);
  // What all hosts reached before a failure is told first: a script that fails at once has trained.
  const bool all_began = std::ranges::all_of(job.hosts, began_script);
  if (all_began || failures.empty()) {
    if (stage == JobStage::kLaunching)
      return reached(HostPhase::kDownload, PlatformEvent::kDownloadBegan);
    if (stage == JobStage::kDownloading)
      return reached(HostPhase::kTraining, PlatformEvent::kTrainingBegan);
  }
  if (!failures.empty()) return judge_failures(job, failures, now_t);
  return reached(HostPhase::kFinished, PlatformEvent::kScriptsDone);
}

std::optional<Verdict> judge_ending(const JobSeen& job, double now_t) {
  if (std::ranges::all_of(job.hosts, is_over))
    return progress(PlatformEvent::kUploaded, last_time(job.hosts, HostPhase::kEnded, now_t));
  const bool scripts_over = std::ranges::all_of(job.hosts, [](const HostSeen& host) {
    return is_over(host) || is_at(host, HostPhase::kFinished);
  });
  if (!scripts_over) return std::nullopt;
  return progress(PlatformEvent::kScriptsEnded, last_time(job.hosts, HostPhase::kFinished, now_t));
}

std::optional<Verdict> judge_uploading(const JobSeen& job, double now_t) {
  if (!std::ranges::all_of(job.hosts, is_over)) return std::nullopt;
  auto verdict = progress(PlatformEvent::kUploaded, last_time(job.hosts, HostPhase::kEnded, now_t));
  if (job.state.ending != EndReason::kNone) return verdict;
  verdict.exit_code = 0;
  const auto failures = failures_of(job, now_t);
  if (failures.empty()) return verdict;
  verdict.event = PlatformEvent::kFault;
  verdict.cause = failures.front().cause;
  verdict.detail = reason_of(failures.front());
  return verdict;
}

bool is_past(const std::optional<double>& limit_s, double s) {
  return limit_s && s > *limit_s;
}

std::optional<Verdict> judge_limits(const JobSeen& job, const JobNeeds& needs, double now_t) {
  const bool waits = job.state.stage == JobStage::kQueued;
  if (job.state.stage >= JobStage::kEnding) return std::nullopt;
  if (waits && is_past(needs.max_pending_s, now_t - job.queued_t)) {
    auto verdict = progress(PlatformEvent::kPendingOver, now_t);
    verdict.detail =
        "CapacityError: Unable to provision requested ML compute capacity within "
        "MaxPendingTimeInSeconds. Please retry using a different ML instance type.";
    return verdict;
  }
  if (is_past(needs.max_wait_s, now_t - job.created_t))
    return progress(PlatformEvent::kWaitOver, now_t);
  if (job.active_s > needs.max_runtime_s) return progress(PlatformEvent::kRuntimeOver, now_t);
  return std::nullopt;
}

}  // namespace

std::string_view to_string(HostLife life) {
  return kLifeNames[static_cast<size_t>(life)];
}

std::optional<HostLife> host_life_from(std::string_view name) {
  return internal::from_name<HostLife>(kLifeNames, name);
}

std::optional<double> time_of(const HostStatus& status, HostPhase phase) {
  for (const auto& change : status.phases)
    if (change.phase >= phase) return change.t;
  return std::nullopt;
}

std::optional<Verdict> judge(const JobSeen& job, const JobNeeds& needs, double now_t) {
  if (auto verdict = judge_limits(job, needs, now_t)) return verdict;
  switch (job.state.stage) {
    case JobStage::kLaunching:
    case JobStage::kDownloading:
    case JobStage::kTraining:
      return judge_working(job, now_t);
    case JobStage::kEnding:
      return judge_ending(job, now_t);
    case JobStage::kUploading:
      return judge_uploading(job, now_t);
    default:
      return std::nullopt;
  }
}

}  // namespace yard::jobs
