// PlatformDb: the platform's jobs in the same SQLite file as JobDb's: requests verbatim, status
// changes, transitions with the work that follows them, hosts, attempts, tags, warm pools.
//
// Every step of a job is one transaction. docs/formats/platform.md names the tables.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "jobs/host_watch.h"
#include "jobs/job_account.h"
#include "jobs/platform_job.h"
#include "jobs/platform_retry.h"
#include "jobs/platform_state.h"
#include "jobs/slices.h"
#include "jobs/warm_pool.h"

namespace yard::jobdb {

struct PlatformHostRow {
  std::string name;  // "algo-1"
  jobs::HostLife life = jobs::HostLife::kWanted;
  std::string group;
  jobs::Slice slice;  // number 0: it has none; its instance type always holds
  bool operator==(const PlatformHostRow&) const = default;
};

struct WarmPool {
  jobs::WarmState state = jobs::WarmState::kNone;
  int64_t keep_alive_s = 0;  // what the job asks for
  double since_t = 0;        // of the time that the pool was, or is, Available
  double until_t = 0;
  std::string reused_by = {};
};

struct PlatformJobRow {
  int64_t id = 0;
  jobs::JobRequest job;
  std::string dir;
  jobs::PlatformState state;
  std::string secondary;
  std::string failure_reason;
  std::optional<int> exit_code;
  double created_t = 0;
  double modified_t = 0;
  double queued_t = 0;  // since when it waits, or waited last
  std::optional<double> training_start_t;
  std::optional<double> training_end_t;
  int attempt = 0;  // 0-based
  jobs::FaultCounts used;
  int replaced_count = 0;
  std::vector<int> avoided_slices;
  bool host_was_at_fault = false;  // the cause of its end
  std::string model_uri;
  std::string output_uri;
  WarmPool warm;
};

struct PlatformAttemptRow {
  int number = 0;
  double started_t = 0;
  double ended_t = 0;   // 0: it runs
  std::string outcome;  // the event that ended it
  std::string cause;    // "host_fault", ...; empty: none
  std::string detail;
};

struct PlatformTransitionRow {
  int64_t id = 0;
  int64_t job_id = 0;
  double t = 0;
  jobs::JobStage from = jobs::JobStage::kQueued;
  jobs::PlatformEvent event = jobs::PlatformEvent::kNoHosts;
  jobs::JobStage to = jobs::JobStage::kQueued;
  jobs::Work work = jobs::Work::kNone;
  bool work_done = false;
  std::string detail;
};

// One event of one job, and all that is to be recorded with it.
struct PlatformStep {
  int64_t job_id = 0;
  jobs::PlatformEvent event = jobs::PlatformEvent::kNoHosts;
  double t = 0;
  std::string detail;  // becomes the failure reason where the job fails by it
  std::optional<jobs::FaultCause> cause;
  std::optional<int> exit_code;
  std::vector<PlatformHostRow> hosts;        // written over the rows of those names
  std::vector<int> avoid;                    // slices that this job does not get again
  std::optional<int64_t> warm_from;          // kPlaced: the job whose pool is taken over
  std::optional<double> keep_hosts_until_t;  // kUploaded: they stay as a warm pool
  std::string model_uri;                     // empty: as it is
  std::string output_uri;
};

struct PlatformQuery {
  jobs::JobKind kind = jobs::JobKind::kTraining;
  std::string name_contains;
  std::string status;
  std::string warm_pool_status;
  std::optional<double> created_after_t;
  std::optional<double> created_before_t;
  std::optional<double> modified_after_t;
  std::optional<double> modified_before_t;
  enum class Sort : uint8_t { kCreated, kName, kStatus } sort = Sort::kCreated;
  bool ascending = false;
  std::string page_token;
  int limit = 10;
};

struct PlatformPage {
  std::vector<PlatformJobRow> jobs;
  std::string next_token;
};

// Not thread-safe: one per thread, or guarded. Codes: kNotFound, kInvalidArgument (the state
// refuses the event; a page token that is none), kExhausted (the name is taken; disk full),
// kUnavailable (another process held the write lock for 10 s), kCorrupt (the file is damaged).
class PlatformDb {
 public:
  // As JobDb::open().
  static Result<PlatformDb> open(const std::string& path);
  PlatformDb(PlatformDb&&) noexcept;
  PlatformDb& operator=(PlatformDb&&) noexcept;
  ~PlatformDb();

  // A new job, queued, its hosts wanted, with the work to place it. Returns its id. kExhausted: its
  // name or its folder is taken.
  Result<int64_t> create(const jobs::JobRequest& request, const std::string& dir,
                         const std::vector<PlatformHostRow>& hosts, int64_t keep_alive_s, double t);
  Status remove(int64_t job_id);  // all that is known of it

  Result<PlatformJobRow> find(jobs::JobKind kind, std::string_view name);
  Result<PlatformJobRow> job(int64_t job_id);
  Result<PlatformPage> list(const PlatformQuery& query);
  // Of jobs that have not ended, or whose hosts were not given back; oldest first.
  Result<std::vector<int64_t>> active_ids();
  Result<int64_t> waiting_count();  // jobs that are queued
  Result<std::vector<jobs::StatusChange>> changes(int64_t job_id);
  Result<std::vector<PlatformHostRow>> hosts(int64_t job_id);  // algo-1, algo-2, ..., algo-10
  Result<std::vector<PlatformAttemptRow>> attempts(int64_t job_id);
  Result<std::vector<PlatformTransitionRow>> transitions(int64_t job_id);

  // Applies jobs::advance_platform() to the stored state: the new state, the status change, the
  // transition with its work, attempts, hosts and warm pools, in one transaction. Work that was
  // still open before counts as superseded.
  Result<jobs::PlatformTransition> apply(const PlatformStep& step);
  // A host moved on without an event of its job: its supervisor was started, its slice given back.
  Status set_host_life(int64_t job_id, std::string_view host, jobs::HostLife life);
  Status mark_work_done(int64_t job_id);
  // Decided and, as far as is known, not done. Oldest first.
  Result<std::vector<PlatformTransitionRow>> pending_work();

  // An Available pool ends; its hosts are free.
  Status end_warm_pool(int64_t job_id, double t);
  Status set_keep_alive(int64_t job_id, int64_t keep_alive_s, std::optional<double> until_t,
                        double t);
  // What is told of it; the hosts and the warm pool's time are stored apart.
  Status set_request(int64_t job_id, const Json& request, double t);

  Result<std::map<std::string, std::string>> tags(std::string_view arn);
  // kInvalidArgument: more than kTagsMax then.
  Status add_tags(std::string_view arn, const std::map<std::string, std::string>& tags);
  Status remove_tags(std::string_view arn, const std::vector<std::string>& keys);

 private:
  struct Impl;
  explicit PlatformDb(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

inline constexpr int kTagsMax = 50;
inline constexpr int kPageSizeMax = 1000;

}  // namespace yard::jobdb
