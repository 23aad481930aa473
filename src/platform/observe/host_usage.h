// What one host of a job uses of its machine, from one look to the next.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "observe/gpu_usage.h"
#include "telemetry/process_usage.h"

namespace yard::observe {

// The processes of a job that were started as one rank, or by it.
struct RankUsage {
  int rank = 0;
  double cpu_percent = 0;  // 100 is one core
  double memory_bytes = 0;
};

struct HostUsage {
  double cpu_percent = 0;                // 100 is one core
  double memory_bytes = 0;               // of all processes, shared memory once
  double memory_percent = 0;             // of the host's limit, or of the machine
  double disk_percent = 0;               // used, of the file system of the job's folder
  double received_bytes_per_second = 0;  // network
  double sent_bytes_per_second = 0;
  double read_bytes_per_second = 0;  // disks
  double written_bytes_per_second = 0;
  size_t process_count = 0;
  std::vector<RankUsage> ranks;  // ascending; empty: a program without ranks
  std::optional<GpuUsage> gpu;   // of the host's GPUs; left to whoever knows which they are
};

// Not thread-safe.
class UsageMeter {
 public:
  // The host's supervisor and all below it. nullopt: the first look, or the supervisor is another
  // one than before. kNotFound: it has ended.
  Result<std::optional<HostUsage>> look(int supervisor_pid, const std::string& folder,
                                        double memory_limit_bytes, const Clock& clock);

 private:
  struct Look {
    int pid = 0;
    Clock::Monotonic t;
    double cpu_s = 0;
    uint64_t received = 0, sent = 0, read = 0, written = 0;
    std::map<int, double> cpu_s_of_rank;
  };
  void add_ranks(const TreeUsage& tree, Look& look, HostUsage& usage);

  std::optional<Look> before_;
  std::map<int, std::optional<int>> rank_of_pid_;  // of the last look
};

}  // namespace yard::observe
