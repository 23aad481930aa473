// The supervisor of one host of a platform job: `yard host DIR`. It lives as long as the job on
// this host, whatever becomes of the daemon: what it needs is in plan.json, what it tells in
// status.json, events.jsonl and the log, what it is told comes through the FIFO `control`
// (docs/formats/host-plan.md).
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "base/stop_token.h"
#include "jobs/host_plan.h"

namespace yard::host {

struct HostSupervisorOptions {
  std::string dir;                         // with plan.json; see HostFolder
  std::map<std::string, std::string> env;  // of this process: credentials, endpoint, proxies
  StopToken stop;                          // as the word "stop"
  std::string programs_dir;                // of ours, which jobs find last in PATH; empty: none
  std::function<void()> on_ready;          // the FIFO listens and status.json is there
  bool resumes = false;                    // see supervise_host()
  std::chrono::milliseconds status_period{1'000};
  std::chrono::milliseconds checkpoint_period{2'000};
};

// Runs until the job has ended here and its results are uploaded, or it was released. Call from the
// main thread, before others start: processes end with it, and mounts are made its own. The result
// is what status.json says at the end. A host that is kept ("keep") goes on with the folder that it
// is given ("adopt"); the result is then that of the last one.
// `resumes`: only what follows the program, for a supervisor that vanished after the program's end.
// kNotFound, kInvalidArgument: no plan, or a wrong one; kUnavailable: another supervisor runs it.
Result<jobs::HostStatus> supervise_host(const HostSupervisorOptions& options);

}  // namespace yard::host
