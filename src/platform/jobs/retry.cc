#include "jobs/retry.h"

#include <fmt/format.h>

#include <csignal>
#include <cstring>

#include "base/exit_code.h"

namespace yard::jobs {
namespace {

bool is_own_fault_code(int code) {
  for (const Code own :
       {Code::kInvalidArgument, Code::kNotFound, Code::kCorrupt, Code::kExhausted}) {
    if (code == exit_code_of(own)) return true;
  }
  return false;
}

Cause cause_after_our_signal(const RankExit& exit) {
  if (exit.signal == SIGKILL && exit.signal_sent != SIGKILL) return Cause::kRankFault;
  if (exit.signal == 0 && is_own_fault_code(exit.code)) return Cause::kUserFault;
  return exit.signal == 0 && exit.code == 0 ? Cause::kDone : Cause::kStopped;
}

Cause cause_of(const RankExit& exit) {
  if (exit.signal_sent != 0) return cause_after_our_signal(exit);
  switch (meaning_of_exit(exit.code, exit.signal)) {
    case ExitMeaning::kSucceeded:
      return Cause::kDone;
    case ExitMeaning::kStopped:
      return Cause::kStopped;
    case ExitMeaning::kUserFault:
      return Cause::kUserFault;
    case ExitMeaning::kRetryable:
      return exit.signal != 0 ? Cause::kRankFault : Cause::kUnavailable;
  }
  YARD_UNREACHABLE();
}

int weight(Cause cause) {
  switch (cause) {
    case Cause::kDone:
      return 0;
    case Cause::kStopped:
      return 1;
    case Cause::kUnavailable:
      return 2;
    case Cause::kUserFault:
      return 3;
    case Cause::kRankFault:
      return 4;
  }
  YARD_UNREACHABLE();
}

std::string describe(const RankExit& exit) {
  if (exit.signal == 0) return fmt::format("rank {} ended with exit code {}", exit.rank, exit.code);
  return fmt::format("rank {} was killed by signal {} ({})", exit.rank, exit.signal,
                     ::strsignal(exit.signal));
}

}  // namespace

std::string_view to_string(Cause cause) {
  switch (cause) {
    case Cause::kDone:
      return "done";
    case Cause::kStopped:
      return "stopped";
    case Cause::kRankFault:
      return "rank_fault";
    case Cause::kUnavailable:
      return "unavailable";
    case Cause::kUserFault:
      return "user_fault";
  }
  YARD_UNREACHABLE();
}

AttemptOutcome classify_attempt(const std::vector<RankExit>& exits) {
  YARD_CHECK(!exits.empty());
  AttemptOutcome outcome{cause_of(exits[0]), exits[0], {}};
  for (const RankExit& exit : exits) {
    const Cause cause = cause_of(exit);
    if (weight(cause) > weight(outcome.cause)) outcome = {cause, exit, {}};
  }
  outcome.detail = describe(outcome.decisive);
  return outcome;
}

bool is_good_exit(const RankExit& exit) {
  return cause_of(exit) == Cause::kDone;
}

RetryDecision decide_retry(Cause cause, const RetryBudget& budget, const RetryHistory& history) {
  YARD_CHECK(cause == Cause::kRankFault || cause == Cause::kUnavailable);
  const bool by_rank = cause == Cause::kRankFault;
  const int allowed = by_rank ? budget.rank_fault : budget.unavailable;
  const int used = by_rank ? history.rank_fault_count : history.unavailable_count;
  if (used >= allowed) {
    return {0, fmt::format("{} of {} restarts after a {} are used up", used, allowed,
                           by_rank ? "rank's death" : "lost peer or store")};
  }
  if (history.stalled_in_a_row >= kStalledAttemptsMax)
    return {0, fmt::format("{} attempts in a row made no progress", history.stalled_in_a_row)};
  return {allowed - used, {}};
}

Code code_of_failure(Cause cause, int exit_code) {
  if (cause == Cause::kRankFault || cause == Cause::kUnavailable) return Code::kUnavailable;
  for (const Code code :
       {Code::kInvalidArgument, Code::kNotFound, Code::kCorrupt, Code::kExhausted}) {
    if (exit_code == exit_code_of(code)) return code;
  }
  return Code::kInternal;
}

}  // namespace yard::jobs
