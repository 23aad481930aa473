// The exit code of our programs and ranks, one table. The supervisor decides on a restart by it.
#pragma once

#include "base/result.h"

namespace yard {

// kInvalidArgument 2, kNotFound 3, kCorrupt 4, kExhausted 5, kUnavailable 6, kDeadlineExceeded 7,
// kCancelled 8 (stopped on request, state saved), kInternal 70. Success is 0.
int exit_code_of(Code code);

// What the supervisor does with a rank's exit code.
enum class ExitMeaning {
  kSucceeded,  // 0
  kStopped,    // 8, or killed by our own SIGTERM: do not restart
  kUserFault,  // 2, 3, 4, 5 and every other code of a user's program: a restart would fail again
  kRetryable,  // 6, 7 (a peer or store was lost), any other signal: go on from the checkpoint
};
ExitMeaning meaning_of_exit(int exit_code, int signal);

}  // namespace yard
