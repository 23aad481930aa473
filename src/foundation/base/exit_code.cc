#include "base/exit_code.h"

#include <csignal>

namespace yard {

int exit_code_of(Code code) {
  switch (code) {
    case Code::kInvalidArgument:
      return 2;
    case Code::kNotFound:
      return 3;
    case Code::kCorrupt:
      return 4;
    case Code::kExhausted:
      return 5;
    case Code::kUnavailable:
      return 6;
    case Code::kDeadlineExceeded:
      return 7;
    case Code::kCancelled:
      return 8;
    case Code::kInternal:
      return 70;  // EX_SOFTWARE of sysexits.h
  }
  YARD_UNREACHABLE();
}

ExitMeaning meaning_of_exit(int exit_code, int signal) {
  if (signal == SIGTERM) return ExitMeaning::kStopped;
  if (signal != 0) return ExitMeaning::kRetryable;
  if (exit_code == 0) return ExitMeaning::kSucceeded;
  if (exit_code == exit_code_of(Code::kCancelled)) return ExitMeaning::kStopped;
  if (exit_code == exit_code_of(Code::kUnavailable)) return ExitMeaning::kRetryable;
  if (exit_code == exit_code_of(Code::kDeadlineExceeded)) return ExitMeaning::kRetryable;
  return ExitMeaning::kUserFault;
}

}  // namespace yard
