// HostEnd: how a host ended, in SageMaker's words.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "jobs/host_plan.h"

namespace yard::host {

struct HostEnd {
  jobs::HostOutcome outcome = jobs::HostOutcome::kCompleted;
  int exit_code = 0;
  std::string reason;  // FailureReason
  jobs::HostCause cause = jobs::HostCause::kNone;

  static HostEnd completed() { return {}; }
  static HostEnd stopped(int exit_code = 0);
  static HostEnd host_fault(const std::string& why);
  // By the program: what it wrote into /opt/ml/output/failure, else `error`.
  static HostEnd failed(const jobs::HostFolder& folder, int exit_code, const std::string& error,
                        jobs::HostCause cause = jobs::HostCause::kUserError);
};

// Who is to blame for the exit code of `command`. Those of `yard launch` say that a rank was killed
// or lost a peer or the store (docs/formats/rank.md); any other program's mean that it failed.
// Pure.
jobs::HostCause cause_of_program(const std::vector<std::string>& command, int exit_code);

// By its code: who is to blame that the program did not start.
HostEnd end_of_preparation(const Error& error);
HostEnd end_of_upload(const Error& error);

// Unless the program wrote one itself.
void write_failure(const jobs::HostFolder& folder, const std::string& text);

// At most `size_max` bytes of it, no character cut, bytes that are no UTF-8 replaced. Pure.
std::string utf8_prefix(std::string_view text, size_t size_max);

}  // namespace yard::host
