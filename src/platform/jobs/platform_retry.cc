#include "jobs/platform_retry.h"

#include <fmt/format.h>

#include "jobs/enum_names_internal.h"

namespace yard::jobs {
namespace {

constexpr std::array<std::string_view, kFaultCauseCount> kCauseNames = {
    "host_fault", "user_error", "preemption", "hang", "unavailable"};
constexpr std::array<std::string_view, kFaultCauseCount> kCauseWords = {
    "a host fault", "an error of the script", "a preemption", "a hang",
    "the loss of a peer or the store"};

}  // namespace

std::string_view to_string(FaultCause cause) {
  return kCauseNames[static_cast<size_t>(cause)];
}

std::optional<FaultCause> fault_cause_from(std::string_view name) {
  return internal::from_name<FaultCause>(kCauseNames, name);
}

FaultCounts default_fault_budgets() {
  FaultCounts budgets;
  budgets.of(FaultCause::kHostFault) = 3;
  budgets.of(FaultCause::kPreemption) = 10;
  budgets.of(FaultCause::kHang) = 1;
  budgets.of(FaultCause::kUnavailable) = 3;
  return budgets;
}

FaultCounts budgets_for_job(FaultCounts budgets, std::optional<int> maximum_retry_attempts,
                            bool never_relaunch) {
  if (never_relaunch) return {};
  if (maximum_retry_attempts) {
    for (const auto cause : {FaultCause::kHostFault, FaultCause::kHang, FaultCause::kUnavailable})
      budgets.of(cause) = *maximum_retry_attempts;
  }
  return budgets;
}

RelaunchDecision decide_relaunch(FaultCause cause, const FaultCounts& budgets,
                                 const FaultCounts& used) {
  if (used.of(cause) < budgets.of(cause)) return {true, ""};
  const auto words = kCauseWords[static_cast<size_t>(cause)];
  if (budgets.of(cause) == 0) return {false, fmt::format("no relaunch follows {}", words)};
  return {false, fmt::format("its {} relaunches after {} are used up", budgets.of(cause), words)};
}

}  // namespace yard::jobs
