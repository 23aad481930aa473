// Why an attempt ended, and whether another one may follow: pure rules.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace yard::jobs {

// Restarts allowed, by cause.
struct RetryBudget {
  int rank_fault = 10;   // a rank died by a signal
  int unavailable = 10;  // a rank said that a peer or a store was lost or too slow
};

// How one rank ended.
struct RankExit {
  int rank = 0;
  int code = 0;         // 128 + signal when killed
  int signal = 0;       // 0: it ended by itself
  int signal_sent = 0;  // the last signal that we had sent it, SIGTERM or SIGKILL
};

enum class Cause { kDone, kStopped, kRankFault, kUnavailable, kUserFault };
std::string_view to_string(Cause cause);

struct AttemptOutcome {
  Cause cause = Cause::kDone;
  RankExit decisive;   // the exit that decided it
  std::string detail;  // "rank 1 was killed by signal 9 (Killed)"
};

// `exits` in the order in which they were noticed. One death drags others along: peers lose their
// connection, and we end the rest. So a death by a signal that we did not send decides, then the
// program's own faults, then a lost peer or store. What a rank does after our SIGTERM counts only
// where our own exit codes say that it found a fault of its own (2 to 5), or somebody else killed
// it with SIGKILL.
AttemptOutcome classify_attempt(const std::vector<RankExit>& exits);

// True while the ranks that still run may be left alone: everything so far ended well.
bool is_good_exit(const RankExit& exit);

// What earlier attempts of this run of the supervisor used up.
struct RetryHistory {
  int rank_fault_count = 0;
  int unavailable_count = 0;
  int stalled_in_a_row = 0;  // attempts that sent heartbeats but reached no new step
};

inline constexpr int kStalledAttemptsMax = 3;

// How many more restarts the fault's cause allows; 0: the job fails. `why_not` then says why.
struct RetryDecision {
  int retries_left = 0;
  std::string why_not;
};
// cause: kRankFault or kUnavailable. `history` does not yet count this fault, but
// stalled_in_a_row does count the attempt that just ended.
RetryDecision decide_retry(Cause cause, const RetryBudget& budget, const RetryHistory& history);

// The Code that `yard run` ends with for a job that failed.
Code code_of_failure(Cause cause, int exit_code);

}  // namespace yard::jobs
