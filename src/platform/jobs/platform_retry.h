// When an attempt of a platform job failed: whether another may follow. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace yard::jobs {

enum class FaultCause : uint8_t {
  kHostFault,    // a machine, or its supervisor, was lost
  kUserError,    // the script's own
  kPreemption,   // the hosts were taken away
  kHang,         // no sign of life from the script
  kUnavailable,  // a peer or the store was lost
};
inline constexpr size_t kFaultCauseCount = 5;
// "host_fault", as stored and in yard.yaml.
std::string_view to_string(FaultCause cause);
std::optional<FaultCause> fault_cause_from(std::string_view name);

// One number per cause: relaunches allowed, or relaunches that there were.
struct FaultCounts {
  std::array<int, kFaultCauseCount> by_cause = {};
  int& of(FaultCause cause) { return by_cause[static_cast<size_t>(cause)]; }
  int of(FaultCause cause) const { return by_cause[static_cast<size_t>(cause)]; }
  bool operator==(const FaultCounts&) const = default;
};

// What holds where yard.yaml says nothing. A script that failed fails again: SageMaker, too, never
// repeats one.
FaultCounts default_fault_budgets();
// The request's RetryStrategy.MaximumRetryAttempts limits what is not the script's fault;
// `never_relaunch`: the tag trainyard:relaunch=never, no cause has a budget.
FaultCounts budgets_for_job(FaultCounts budgets, std::optional<int> maximum_retry_attempts,
                            bool never_relaunch);

struct RelaunchDecision {
  bool relaunch = false;
  std::string why_not;  // "its 3 relaunches after a host fault are used up"
};
RelaunchDecision decide_relaunch(FaultCause cause, const FaultCounts& budgets,
                                 const FaultCounts& used);

}  // namespace yard::jobs
