// The processes of one host of a job, as /proc shows them now: its supervisor, and in the sandbox
// the job's program with its ranks.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "host/process.h"

namespace yard::observe {

struct HostProcess {
  pid_t pid = 0;
  int inner_pid = 0;        // in the sandbox's own namespace; 1 is its init
  std::optional<int> rank;  // of torchrun and its kind; a rank's children have it too
};

struct HostProcesses {
  host::ProcessId supervisor;
  std::vector<HostProcess> inside;  // of the sandbox, parents before children
};

// `host_dir`: JOB_DIR/hosts/algo-1. kNotFound: no supervisor runs there, for it has not come up yet
// or has ended.
Result<HostProcesses> host_processes(const std::string& host_dir);

// The job's program: what the sandbox's init started. nullopt: it has not started.
std::optional<HostProcess> program_of(const HostProcesses& host);
// The process of a rank, its own children left out. A job without ranks has one, 0: its program.
std::optional<HostProcess> process_of_rank(const HostProcesses& host, int rank);

// What the variable RANK said when the program of `pid` began.
std::optional<int> rank_of_process(pid_t pid);

}  // namespace yard::observe
