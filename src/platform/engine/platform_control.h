// PlatformControl: the jobs of `yard serve`, from a client's request to its end.
//
// The rules are in jobs/ (pure), the memory in jobdb/, the work in `yard host` processes that
// outlive this one. A thread of its own places jobs, starts and watches their hosts, and moves
// each job on, every step one transaction: after a SIGKILL at any instant the next one to open the
// same home goes on where this one was.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "engine/home_config.h"
#include "jobs/platform_job.h"

namespace yard::engine {

using jobs::JobKind;
using jobs::JobRequest;
using jobs::JobView;
using jobs::StatusChange;

struct PlatformOptions {
  std::string home;                        // $YARD_HOME; made when missing
  std::string yard_program;                // `YARD_PROGRAM host --foreground DIR` is a supervisor
  std::map<std::string, std::string> env;  // of supervisors: PATH, and what else they need
  std::string region = "us-east-1";
  std::string store_endpoint;  // where jobs find S3: "http://127.0.0.1:7070"; empty: AWS
  // AWS_ACCESS_KEY_ID and so on of jobs: given in the supervisor's environment, never in a file.
  std::map<std::string, std::string> store_credentials;
  // The virtual environment of jobs whose image no rule of yard.yaml names; empty: those are
  // refused.
  std::string default_python;
  HomeConfig config;
  Clock* clock = &Clock::real();  // must outlive it
};

enum class JobSort : uint8_t { kCreated, kName, kStatus };

// Empty strings and optionals do not filter. Times are Unix seconds; after and before exclude
// the time itself.
struct JobFilter {
  JobKind kind = JobKind::kTraining;
  std::string name_contains;
  std::string status;
  std::string warm_pool_status;
  std::optional<double> created_after_t;
  std::optional<double> created_before_t;
  std::optional<double> modified_after_t;
  std::optional<double> modified_before_t;
  JobSort sort = JobSort::kCreated;
  bool ascending = false;
  std::string page_token;  // JobPage::next_token of the same filter
  int limit = 10;          // 1 to 1000
};

struct JobPage {
  std::vector<JobView> jobs;  // without their status changes
  std::string next_token;     // empty: that was the last page
};

// Thread-safe. One per home at a time. Codes: kNotFound (no such job), kInvalidArgument (the
// request, or the state of the job, does not allow it), kExhausted (see create()), kUnavailable
// (the database is locked, or too much waits already), and those of jobdb::PlatformDb.
class PlatformControl {
 public:
  // kUnavailable: another process has this home open. Jobs that an earlier one left are taken over
  // before it returns.
  static Result<std::unique_ptr<PlatformControl>> open(const PlatformOptions& options);
  ~PlatformControl();  // the jobs run on
  PlatformControl(const PlatformControl&) = delete;
  PlatformControl& operator=(const PlatformControl&) = delete;

  // The job exists when this returns Ok, and waits for its hosts. kExhausted: a job of this kind
  // has the name (AWS: ResourceInUse); of two at once one gets it. kInvalidArgument: no
  // host that is described in yard.yaml can run it. kUnavailable: kWaitingJobsMax wait already.
  Status create(const JobRequest& request);
  Result<JobView> find(JobKind kind, std::string_view name);
  Result<JobPage> list(const JobFilter& filter);
  // Returns at once; the job becomes Stopped later. Ok for one that is Stopping, or that uploads
  // its results already (it completes); kInvalidArgument for one that has ended.
  Status stop(JobKind kind, std::string_view name);
  // Forgets a job that has ended, with its folder. kInvalidArgument: it has not ended, or its warm
  // pool is still there. kUnavailable: its hosts are being tidied up, a moment later it is
  // possible.
  Status remove(JobKind kind, std::string_view name);
  // A job that runs: how long its hosts stay afterwards, 0: not at all. One that has ended with an
  // Available pool: counted from now. kInvalidArgument: it has no such pool any more.
  Status update_keep_alive(std::string_view name, int64_t seconds);
  // Members of a training job's request that are told from now on instead of those it came with;
  // how it runs does not change by it. Of two at once on one job each changes its own members.
  Status update_request(std::string_view name, const Json& members);

  // The slice of a host, "algo-1", fails its health checks from now on: the next attempt or job
  // there gets another. Its number. kNotFound: no such host, or it has no slice now.
  Result<int> declare_slice_faulty(JobKind kind, std::string_view name, std::string_view host);
  // All slices that were declared faulty are well again; how many that were.
  int mend_slices();

  // Of a job, by its ARN. At most 50 tags: kInvalidArgument.
  Result<std::map<std::string, std::string>> tags(std::string_view arn);
  Status add_tags(std::string_view arn, const std::map<std::string, std::string>& tags);
  Status remove_tags(std::string_view arn, const std::vector<std::string>& keys);

 private:
  struct Impl;
  explicit PlatformControl(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

inline constexpr int kWaitingJobsMax = 10'000;

}  // namespace yard::engine
