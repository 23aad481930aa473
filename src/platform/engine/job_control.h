// JobControl: what one can do with the jobs of a YARD_HOME: submit, resume, stop, look.
//
// The rules are in jobs/, the memory in jobdb/, the work in host/; this joins them. Used by the
// command, and by whatever else takes requests.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "engine/engine.h"
#include "host/job_folder.h"
#include "jobdb/job_db.h"
#include "jobs/job_spec.h"

namespace yard::engine {

struct JobControlOptions {
  std::string home;  // $YARD_HOME; made when missing
  std::string yard_program;
  std::map<std::string, std::string> env;  // of the jobs that are started
  Clock* clock = &Clock::real();           // must outlive it
};

// Not thread-safe. Several processes may have one each on the same home. Codes besides those of
// JobDb and Engine: kNotFound names the nearest job; kInvalidArgument: the job's state refuses it.
class JobControl {
 public:
  static Result<JobControl> open(const JobControlOptions& options);

  host::JobFolder folder(std::string_view name) const;
  // Creates the job and starts it; returns once its supervisor is ready. `recipe` is kept with it.
  Status submit(const jobs::JobSpec& spec, const std::optional<std::string>& recipe);
  // Starts a job that failed or was stopped again, from its last checkpoint.
  Status resume(const std::string& name);
  // Asks its ranks to save their state and end. The word is "stop", or "kill": at once.
  Status stop(const std::string& name, std::string_view word);

  // Jobs whose supervisor has vanished are found out and become `failed` here.
  Result<std::vector<jobdb::JobRow>> list();
  Result<jobdb::JobRow> find(const std::string& name);
  jobdb::JobDb& db() { return *db_; }

 private:
  JobControl(std::string home, Clock& clock) : home_(std::move(home)), clock_(&clock) {}
  Status launch(const std::string& name, const std::string& dir);
  Status start_on_a_host(const std::string& name, const std::string& dir);
  Status settle_if_lost(const jobdb::JobRow& job);

  std::string home_;
  Clock* clock_;
  std::unique_ptr<jobdb::JobDb> db_;
  std::unique_ptr<Engine> engine_;
};

std::string database_path(const std::string& home);

}  // namespace yard::engine
