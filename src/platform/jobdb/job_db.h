// JobDb: the jobs, their attempts and every transition, in SQLite.
//
// WAL mode: any number of processes read while one writes. A commit survives the death of every
// process; after a power cut the last commits may be missing, never half there.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "jobs/job_spec.h"
#include "jobs/job_state.h"

namespace yard::jobdb {

// The process that is responsible for a job now: who launches it, then its supervisor.
struct Owner {
  int pid = 0;
  uint64_t start_ticks = 0;
};

struct JobRow {
  std::string name;
  std::string dir;
  jobs::JobState state = jobs::JobState::kQueued;
  std::string reason;  // the detail of the last transition
  std::string host;    // where it was placed; empty before
  Owner owner;
  int64_t attempt_count = 0;
  double created_t = 0;  // Unix seconds
  double updated_t = 0;
};

struct TransitionRow {
  int64_t id = 0;
  std::string job;
  double t = 0;
  jobs::JobState from = jobs::JobState::kQueued;
  jobs::JobEvent event = jobs::JobEvent::kPlaced;
  jobs::JobState to = jobs::JobState::kQueued;
  jobs::Action action = jobs::Action::kNone;
  bool action_done = false;
  std::string detail;
};

struct AttemptRow {
  int64_t number = 0;
  double started_t = 0;
  double ended_t = 0;   // 0: it runs
  std::string outcome;  // the event that ended it
  std::string detail;
};

struct TransitionRequest {
  std::string job;
  jobs::JobEvent event = jobs::JobEvent::kPlaced;
  int retries_left = 0;
  std::string detail;
};

// Not thread-safe: one per thread, or guarded. Codes: kNotFound (no such job), kInvalidArgument
// (the state refuses the event; the name is taken), kExhausted (disk full), kUnavailable (another
// process held the write lock for 10 s), kCorrupt (the file is damaged).
class JobDb {
 public:
  // Makes the file when there is none and brings an older one up to date. kInvalidArgument when a
  // newer version of trainyard wrote it; kCorrupt when it is not such a database. `clock` must
  // outlive it.
  static Result<JobDb> open(const std::string& path, Clock& clock);
  JobDb(JobDb&&) noexcept;
  JobDb& operator=(JobDb&&) noexcept;
  ~JobDb();

  // A new job, `queued`; its first transition is still to come.
  Status create_job(const std::string& name, const std::string& dir, const Owner& owner);
  // Forgets a job that could not be made after all.
  Status remove_job(const std::string& name);

  Result<JobRow> job(std::string_view name);
  Result<std::vector<JobRow>> jobs();  // oldest first

  // Applies jobs::advance() to the stored state: new state, transition with its action, and the
  // attempt that begins or ends with it, in one transaction. An event shows that the job's earlier
  // actions were performed: they count as done.
  Result<jobs::Transition> apply(const TransitionRequest& request);
  // The job's last action was performed, and no further event will show it.
  Status mark_action_done(const std::string& name);
  Status set_owner(const std::string& name, const Owner& owner);
  Status set_host(const std::string& name, const std::string& host);

  // What was decided and, as far as is known, not performed: read at start-up. Oldest first.
  Result<std::vector<TransitionRow>> pending_actions();
  Result<std::vector<TransitionRow>> transitions(std::string_view name);  // oldest first
  Result<std::vector<AttemptRow>> attempts(std::string_view name);        // oldest first

 private:
  struct Impl;
  explicit JobDb(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace yard::jobdb
