// Attempt: the processes of all ranks, from their launch to the end of the last one.
#pragma once

#include <poll.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/subprocess.h"
#include "host/job_status.h"
#include "host/rank_log.h"
#include "host/rank_plan.h"
#include "host/spare_ranks.h"
#include "jobs/job_spec.h"

namespace yard::host {

struct AttemptOptions {
  const jobs::JobSpec* spec = nullptr;  // must outlive the attempt, as must job_log
  LogFile* job_log = nullptr;
  AttemptPlan plan;
  std::map<std::string, std::string> env;  // the supervisor's own
  std::vector<int> cores;                  // the host's; empty: no affinity
  size_t core_count = 1;                   // for OMP_NUM_THREADS
  SpareRanks* spares = nullptr;            // null: every rank is a new process
};

// Not thread-safe. The ranks die with this object, and with our process.
class Attempt {
 public:
  // All ranks or none. The codes of Subprocess::spawn, and of opening a rank's log.
  static Result<Attempt> launch(const AttemptOptions& options);

  // What poll() is to watch, appended to `items`: the ends of ranks and what they print.
  void add_poll_items(std::vector<pollfd>& items) const;
  // Copies output, a bounded amount per rank.
  void pump_logs();
  // The ranks that ended since the last call, in the order of their numbers; their output is whole.
  std::vector<jobs::RankExit> reap();

  bool any_running() const { return running_count_ > 0; }
  // SIGTERM goes to the rank alone, which may still need its helpers to save its state; SIGKILL
  // reaches all that it started.
  void terminate_running();
  void kill_running();
  void kill_rank(int rank);  // as somebody else would: not counted as ours
  // Ends what the ranks started and left running; call when none of them runs.
  void finish();

  const std::vector<jobs::RankExit>& exits() const { return exits_; }  // as they were noticed
  std::vector<RankStatus> rank_status() const;
  std::vector<int64_t> pids() const;
  int spare_count() const { return spare_count_; }  // ranks that run in one of the spares

 private:
  struct Rank {
    Subprocess process;
    std::unique_ptr<RankLog> log;
    bool running = true;
    int signal_sent = 0;
    ExitStatus exit;
  };
  Status launch_rank(const AttemptOptions& options, int rank);

  std::vector<Rank> ranks_;
  std::vector<jobs::RankExit> exits_;
  size_t running_count_ = 0;
  int spare_count_ = 0;
};

// A TCP port of 127.0.0.1 that nobody listens on now. Somebody may take it before the ranks do:
// then they end with 6 and the next attempt gets another one.
Result<int> find_free_port();

}  // namespace yard::host
