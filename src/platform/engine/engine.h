// Engine: where hosts come from, and how a supervisor gets onto one.
//
// local_engine.h: this machine. Others (Slurm) come behind the same interface.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "host/process.h"

namespace yard::engine {

struct Host {
  std::string name;
  std::string address;     // how its ranks reach each other
  std::vector<int> cores;  // that a job may use
};

struct HostRequest {
  std::string job;
  int host_count = 1;
};

// Not thread-safe. All codes: kUnavailable, kExhausted (no host can be had now), kInvalidArgument
// (no such number of hosts will ever be had), kNotFound (a program is missing).
class Engine {
 public:
  virtual ~Engine() = default;
  virtual Result<std::vector<Host>> acquire(const HostRequest& request) = 0;
  // Starts the supervisor of the job in `job_dir`, which outlives us, and waits until it is ready.
  virtual Result<host::ProcessId> start(const Host& host, const std::string& job_dir) = 0;
  // Whatever the job left on its host is ended; the host may be given to somebody else.
  virtual Status release(const std::string& job_dir) = 0;
};

}  // namespace yard::engine
