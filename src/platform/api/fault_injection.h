// FaultInjection: breaks what a yard runs on, on purpose, to see that jobs survive it.
#pragma once

#include <atomic>
#include <optional>
#include <string>

#include "api/job_desk.h"
#include "base/clock.h"
#include "base/result.h"

namespace yard::api {

struct Fault {
  std::string name;  // "kill-rank", ...: shapes/trainyard.json lists them
  jobs::JobKind kind = jobs::JobKind::kTraining;
  std::string job;          // of all but the store's and the daemon's
  std::string host;         // "algo-1"; empty: the first, of a rank: the one that has it
  std::optional<int> rank;  // empty: 0
  uint64_t bytes = 0;       // of fill-disk
  int seconds = 0;          // of break-store
};

// Thread-safe.
//
// kill-rank, freeze-rank, thaw-rank: SIGKILL, SIGSTOP, SIGCONT for the process of one rank.
// kill-supervisor: SIGKILL for the supervisor of a host; what it started ends with it.
// fail-host: the same for all of its processes at once, as when a machine loses its power.
// fail-slice: the part of the machine that the host is on fails every health check from now on, so
// that the next attempt or job there gets another; mend-slices: all are well again.
// fill-disk: a file of `bytes` in the host's /opt/ml; free-disk removes it.
// break-store: every request for objects gets 503 for `seconds`, or until mend-store.
// kill-daemon: SIGKILL for the process that serves, a moment after the answer.
class FaultInjection {
 public:
  // Both outlive it.
  FaultInjection(JobDesk& desk, const Clock& clock) : desk_(desk), clock_(clock) {}

  // What it did, for a person: "killed rank 1 of job-7 on algo-2 (process 4711)". kNotFound: no
  // such job, host or rank runs now; kInvalidArgument: the fault needs more, or is none.
  Result<std::string> inject(const Fault& fault);

  bool is_store_broken() const;

 private:
  Result<std::string> signal_rank(const Fault& fault, int signal, std::string_view done);
  Result<std::string> end_host(const Fault& fault, bool with_all);
  Result<std::string> fail_slice(const Fault& fault);
  Result<std::string> fill_disk(const Fault& fault);
  Result<std::string> free_disk(const Fault& fault);
  Result<std::string> break_store(int seconds);
  Result<engine::JobView> job_of(const Fault& fault);
  Result<std::string> host_dir_of(const Fault& fault);

  JobDesk& desk_;
  const Clock& clock_;
  std::atomic<int64_t> store_broken_until_ns_ = 0;  // of the monotonic clock
};

}  // namespace yard::api
