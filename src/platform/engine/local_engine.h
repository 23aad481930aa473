// LocalEngine: this machine as hosts; a supervisor is a process in a session of its own.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "jobdb/job_db.h"

namespace yard::engine {

struct LocalEngineOptions {
  std::string yard_program;                // `YARD supervise JOB_DIR --cores ...` is started
  std::map<std::string, std::string> env;  // of supervisors, and so of ranks
  std::vector<Host> hosts;
};

// The host with the fewest jobs, the first of several. Pure; `hosts` is not empty.
const Host& choose_host(const std::vector<Host>& hosts, const std::vector<jobdb::JobRow>& jobs);

// `db` must outlive it. Hosts may be shared: two jobs at once on one host share its cores.
class LocalEngine : public Engine {
 public:
  LocalEngine(LocalEngineOptions options, jobdb::JobDb& db)
      : options_(std::move(options)), db_(db) {}
  Result<std::vector<Host>> acquire(const HostRequest& request) override;
  Result<host::ProcessId> start(const Host& host, const std::string& job_dir) override;
  Status release(const std::string& job_dir) override;

 private:
  LocalEngineOptions options_;
  jobdb::JobDb& db_;
};

// The other side of start(), in the supervisor's process: leaves the session, the process group
// and the files of whoever started it. Returns in the new process only; the old one has ended.
// Its standard output is still the pipe to start(), see report_ready().
Status become_daemon(const std::string& log_path);
// Tells start() that all is well, or what is wrong, and lets go of its pipe.
void report_ready();
void report_failure(const Error& error);

}  // namespace yard::engine
