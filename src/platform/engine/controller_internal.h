// Controller: the thread behind PlatformControl. What is to be done follows from the database and
// the hosts' files alone, so that it can begin anywhere: after a crash, too.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/file.h"
#include "base/stop_token.h"
#include "engine/host_engine.h"
#include "engine/plan_builder.h"
#include "jobdb/platform_db.h"
#include "jobs/job_needs.h"

namespace yard::engine::internal {

// Wall time that no jump of the machine's clock moves while we run.
class PlatformTime {
 public:
  explicit PlatformTime(Clock& clock)
      : clock_(&clock), start_(clock.now()), start_t_(to_unix_seconds(clock.wall_now())) {}
  double now_t() const {
    return start_t_ + std::chrono::duration<double>(clock_->now() - start_).count();
  }

 private:
  Clock* clock_;
  Clock::Monotonic start_;
  double start_t_;
};

// The database, for the controller's thread and those of requests.
class PlatformStore {
 public:
  explicit PlatformStore(jobdb::PlatformDb db) : db_(std::move(db)) {}
  template <typename F>
  auto with(F&& f) {
    std::lock_guard lock(mutex_);
    return f(db_);
  }

 private:
  std::mutex mutex_;
  jobdb::PlatformDb db_;
};

// A job that has not ended, or whose hosts were not given back.
struct LiveJob {
  jobdb::PlatformJobRow row;
  jobs::JobNeeds needs;
  std::vector<jobdb::PlatformHostRow> hosts;
  std::vector<jobs::StatusChange> changes;
  std::vector<jobs::LostAttempt> lost;
  std::string pool_dir;     // the folder of the job whose warm pool this one took over
  std::string network_dir;  // names the network of its hosts, when not its own folder
  // Of this process only: what was said to whom, who was asked to go and when, what failed.
  std::map<std::string, std::set<std::string, std::less<>>> said;
  std::map<std::string, double> clearing_since_t;
  std::set<std::string> cleaned;
  std::map<std::string, std::string> start_errors;
  std::map<std::string, int> resumed_count;  // supervisors that vanished after their scripts' end
};

// The file that says whose warm pool a job runs on.
std::string pool_note(const std::string& job_dir);
Result<LiveJob> load_live_job(jobdb::PlatformDb& db, int64_t job_id);
std::vector<jobs::LostAttempt> lost_attempts(const std::vector<jobdb::PlatformAttemptRow>& rows);

struct ControllerOptions {
  PlatformConfig config;
  PlanContext context;  // its config is set to ours
  const PlatformTime* time = nullptr;
};

// run() is for one thread; wake() may be called by any.
class Controller {
 public:
  // kExhausted: no descriptors left; and what the database says.
  static Result<std::unique_ptr<Controller>> open(ControllerOptions options, PlatformStore& store,
                                                  std::unique_ptr<HostEngine> engine);
  void run(const StopToken& stop);
  void wake(int64_t job_id);  // it is new, or a request changed it

 private:
  Controller(ControllerOptions options, PlatformStore& store, std::unique_ptr<HostEngine> engine);
  double now_t() const { return options_.time->now_t(); }

  // The loop: who has to be looked at.
  void wait(const StopToken& stop) const;
  std::set<int64_t> take_woken();
  void sweep(const std::set<int64_t>& job_ids);
  void reload(int64_t job_id);
  void settle(int64_t job_id);
  // One move of a job; true when it made one, and another may follow.
  bool move(LiveJob& live);
  bool judge_and_apply(LiveJob& live);
  bool apply(LiveJob& live, jobdb::PlatformStep step);
  jobs::JobSeen see(const LiveJob& live);
  jobdb::PlatformStep step_of(const LiveJob& live, const jobs::Verdict& verdict);
  void add_results(const LiveJob& live, jobdb::PlatformStep& step);

  // controller_hosts.cc
  std::string dir_of(const LiveJob& live, const jobdb::PlatformHostRow& host) const;
  void start_hosts(LiveJob& live);
  Status start_host(LiveJob& live, const jobdb::PlatformHostRow& host);
  bool replace_hosts(LiveJob& live);
  bool clear_for_restart(LiveJob& live);
  bool clear_host(LiveJob& live, const jobdb::PlatformHostRow& host);
  bool give_back_hosts(LiveJob& live);
  void tell_hosts(LiveJob& live);
  void let_go(LiveJob& live);
  void resume_hosts(LiveJob& live);
  bool keep_for_restart(LiveJob& live, const jobdb::PlatformHostRow& host);
  void say(LiveJob& live, const jobdb::PlatformHostRow& host, std::string_view word);
  void set_life(LiveJob& live, jobdb::PlatformHostRow& host, jobs::HostLife life);

  // controller_queue.cc
  void place_waiting();
  enum class Placed { kYes, kNotNow, kNever };
  Placed place_job(LiveJob& live);
  LiveJob* find_warm_pool(const LiveJob& live);
  bool place_on_pool(LiveJob& live, LiveJob& pool);
  std::vector<jobs::Slice> held_slices() const;
  std::vector<int64_t> waiting_in_order() const;
  bool waits_for_its_type_only(const LiveJob& live) const;
  void expire_warm_pools();

  ControllerOptions options_;
  PlatformStore& store_;
  std::unique_ptr<HostEngine> engine_;
  std::map<int64_t, LiveJob> jobs_;
  std::map<std::string, int64_t> job_of_dir_;  // of hosts
  double swept_t_ = 0;
  UniqueFd wake_fd_;
  std::mutex woken_mutex_;
  std::set<int64_t> woken_;
};

}  // namespace yard::engine::internal
