// JobRecord: everything that is known about the course of a job, and its files on disk: events,
// heartbeats, ledger. The supervisor's memory; it takes no decision.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/clock.h"
#include "base/file.h"
#include "base/result.h"
#include "host/file_tail.h"
#include "host/job_folder.h"
#include "jobs/ledger.h"
#include "jobs/progress.h"
#include "jobs/supervisor_event.h"

namespace yard::host {

// Not thread-safe. `clock` must outlive it.
class JobRecord {
 public:
  // Reads what earlier supervisors of the job left, so that ledger and counts go on.
  static Result<JobRecord> open(const JobFolder& folder, const jobs::JobSpec& spec, Clock& clock);

  double now_t() const { return to_unix_seconds(clock_->wall_now()); }
  // Appends to events.jsonl and to the ledger; a full disk costs the line, not the job. Sets
  // event.t to now unless it is set.
  void note(jobs::SupervisorEvent event);
  // As note(), but for the ledger alone: the line follows later, with note_line().
  void note_in_ledger(const jobs::SupervisorEvent& event);
  void note_line(const jobs::SupervisorEvent& event);

  // Takes what the ranks told since the last time; `on_heartbeat` sees every one.
  void read_heartbeats(const std::function<void(int rank, const jobs::Heartbeat&)>& on_heartbeat);
  // A rank that died in the middle of a line must not spoil the next attempt's first one.
  void mend_heartbeat_files();

  void write_ledger();
  jobs::ProgressSnapshot progress() const { return progress_.snapshot(); }

  // Of all attempts so far, of earlier supervisors too.
  int next_attempt() const { return next_attempt_; }
  int64_t best_step() const { return best_step_; }
  bool chaos_done() const { return chaos_done_; }

 private:
  JobRecord(JobFolder folder, const jobs::JobSpec& spec, Clock& clock);
  void replay();
  void take(int rank, const jobs::Heartbeat& heartbeat);
  void take(const jobs::SupervisorEvent& event);

  JobFolder folder_;
  Clock* clock_;
  UniqueFd events_;
  std::vector<FileTail> tails_;  // by rank
  jobs::LedgerBuilder ledger_;
  jobs::Progress progress_;
  int next_attempt_ = 0;
  int64_t best_step_ = 0;
  bool chaos_done_ = false;
};

}  // namespace yard::host
