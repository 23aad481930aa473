#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/log.h"
#include "engine/controller_internal.h"

namespace yard::engine::internal {

using jobs::HostLife;
using jobs::JobStage;
using jobs::PlatformEvent;

namespace {

// Everything is looked at once in this time, whatever the descriptors say: limits of time, words
// that were not heard, hosts that cannot be watched.
constexpr double kSweepPeriod_s = 0.5;
constexpr int kSweepPeriod_ms = 500;
constexpr int kMovesMax = 64;
constexpr uint64_t kPoolNoteBytesMax = 64 << 10;

bool was_lost(const jobdb::PlatformAttemptRow& attempt) {
  return attempt.ended_t > 0 &&
         (attempt.outcome == to_string(PlatformEvent::kRelaunch) ||
          attempt.outcome == to_string(PlatformEvent::kPreempted)) &&
         attempt.cause != to_string(jobs::FaultCause::kUserError);
}

bool is_working(JobStage stage) {
  return stage == JobStage::kLaunching || stage == JobStage::kDownloading ||
         stage == JobStage::kTraining;
}

}  // namespace

std::vector<jobs::LostAttempt> lost_attempts(const std::vector<jobdb::PlatformAttemptRow>& rows) {
  std::vector<jobs::LostAttempt> lost;
  for (const auto& row : rows)
    if (was_lost(row)) lost.push_back({row.started_t, row.ended_t});
  return lost;
}

namespace {

// Written before the pool was taken: where a crash came in between it names one that is not ours,
// which then has no supervisor that is kept for us.
void read_pool_note(LiveJob& live) {
  const std::string path = pool_note(live.row.dir);
  const auto text = read_file(path, kPoolNoteBytesMax);
  if (!text) return;
  const auto note = parse_json(*text, path);
  if (!note || !note->is_object()) return;
  const auto pool = json_field_or<std::string>(*note, "pool_dir", {}, path);
  const auto network = json_field_or<std::string>(*note, "network_dir", {}, path);
  if (pool) live.pool_dir = *pool;
  if (network) live.network_dir = *network;
}

}  // namespace

std::string pool_note(const std::string& job_dir) {
  return job_dir + "/warm_pool.json";
}

Result<LiveJob> load_live_job(jobdb::PlatformDb& db, int64_t job_id) {
  LiveJob live;
  YARD_ASSIGN(live.row, db.job(job_id));
  YARD_ASSIGN(live.needs, jobs::job_needs(live.row.job));
  live.needs.keep_alive_s = live.row.warm.keep_alive_s;
  YARD_ASSIGN(live.hosts, db.hosts(job_id));
  YARD_ASSIGN(live.changes, db.changes(job_id));
  YARD_ASSIGN(const auto attempts, db.attempts(job_id));
  live.lost = lost_attempts(attempts);
  read_pool_note(live);
  return live;
}

Controller::Controller(ControllerOptions options, PlatformStore& store,
                       std::unique_ptr<HostEngine> engine)
    : options_(std::move(options)), store_(store), engine_(std::move(engine)) {
  options_.context.config = &options_.config;
}

Result<std::unique_ptr<Controller>> Controller::open(ControllerOptions options,
                                                     PlatformStore& store,
                                                     std::unique_ptr<HostEngine> engine) {
  std::unique_ptr<Controller> controller(
      new Controller(std::move(options), store, std::move(engine)));
  controller->wake_fd_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!controller->wake_fd_.valid()) return errno_error("eventfd", errno);
  YARD_ASSIGN(const auto ids, store.with([](auto& db) { return db.active_ids(); }));
  for (const int64_t id : ids) controller->reload(id);
  return controller;
}

void Controller::wake(int64_t job_id) {
  {
    std::lock_guard lock(woken_mutex_);
    woken_.insert(job_id);
  }
  const uint64_t one = 1;
  // It fails only when it is readable already.
  [[maybe_unused]] const ssize_t written = ::write(wake_fd_.get(), &one, sizeof one);
}

std::set<int64_t> Controller::take_woken() {
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = ::read(wake_fd_.get(), &count, sizeof count);
  std::lock_guard lock(woken_mutex_);
  return std::exchange(woken_, {});
}

void Controller::wait(const StopToken& stop) const {
  std::array<pollfd, 3> items = {{{.fd = stop.fd(), .events = POLLIN, .revents = 0},
                                  {.fd = wake_fd_.get(), .events = POLLIN, .revents = 0},
                                  {.fd = engine_->fd(), .events = POLLIN, .revents = 0}}};
  (void)::poll(items.data(), items.size(), kSweepPeriod_ms);
}

void Controller::run(const StopToken& stop) {
  std::set<int64_t> all;
  for (const auto& [id, live] : jobs_) all.insert(id);
  sweep(all);
  while (!stop.stopped()) {
    wait(stop);
    std::set<int64_t> due = take_woken();
    for (const int64_t id : due) reload(id);
    for (const auto& dir : engine_->changed()) {
      const auto it = job_of_dir_.find(dir);
      if (it != job_of_dir_.end()) due.insert(it->second);
    }
    if (now_t() - swept_t_ >= kSweepPeriod_s)
      for (const auto& [id, live] : jobs_) due.insert(id);
    if (!due.empty() && !stop.stopped()) sweep(due);
  }
}

void Controller::sweep(const std::set<int64_t>& job_ids) {
  if (job_ids.size() >= jobs_.size()) swept_t_ = now_t();
  for (const int64_t id : job_ids) settle(id);
  expire_warm_pools();
  place_waiting();
}

void Controller::reload(int64_t job_id) {
  auto loaded = store_.with([&](auto& db) { return load_live_job(db, job_id); });
  if (!loaded) {
    if (loaded.error().code == Code::kNotFound)
      jobs_.erase(job_id);
    else
      log_error("job number {} is left alone: {}", job_id, loaded.error().message);
    return;
  }
  for (const auto& host : loaded->hosts) job_of_dir_[dir_of(*loaded, host)] = job_id;
  const auto [it, is_new] = jobs_.try_emplace(job_id);
  LiveJob& live = it->second;
  // What this process did stays known for as long as the attempt is the same.
  if (!is_new && live.row.attempt == loaded->row.attempt) {
    loaded->said = std::move(live.said);
    loaded->clearing_since_t = std::move(live.clearing_since_t);
    loaded->cleaned = std::move(live.cleaned);
    loaded->start_errors = std::move(live.start_errors);
    loaded->resumed_count = std::move(live.resumed_count);
  }
  live = *std::move(loaded);
}

void Controller::settle(int64_t job_id) {
  for (int moves = 0; moves < kMovesMax; ++moves) {
    const auto it = jobs_.find(job_id);
    if (it == jobs_.end() || !move(it->second)) break;
  }
  const auto it = jobs_.find(job_id);
  if (it == jobs_.end() || !is_final(it->second.row.state.stage)) return;
  const bool is_over = std::ranges::all_of(
      it->second.hosts, [](const auto& host) { return host.life == HostLife::kFree; });
  if (!is_over) return;
  for (const auto& host : it->second.hosts) {
    engine_->forget(dir_of(it->second, host));
    job_of_dir_.erase(dir_of(it->second, host));
  }
  jobs_.erase(it);
}

bool Controller::move(LiveJob& live) {
  const JobStage stage = live.row.state.stage;
  if (is_final(stage)) return give_back_hosts(live);
  if (stage == JobStage::kRestarting && clear_for_restart(live)) return true;
  if (is_working(stage)) {
    if (replace_hosts(live)) return true;
    start_hosts(live);
    let_go(live);
  }
  if (stage == JobStage::kTraining || stage == JobStage::kEnding || stage == JobStage::kUploading)
    resume_hosts(live);
  if (stage == JobStage::kEnding || stage == JobStage::kUploading) tell_hosts(live);
  return judge_and_apply(live);
}

jobs::JobSeen Controller::see(const LiveJob& live) {
  jobs::JobSeen seen{
      .state = live.row.state,
      .hosts = {},
      .created_t = live.row.created_t,
      .queued_t = live.row.queued_t,
      .active_s = jobs::account_of(live.changes, live.lost, now_t()).active_s(),
      .budgets = jobs::budgets_for_job(options_.config.retries, live.needs.maximum_retry_attempts,
                                       live.needs.never_relaunch),
      .used = live.row.used,
      .replaced_count = live.row.replaced_count};
  if (live.row.state.stage == JobStage::kQueued) return seen;
  for (const auto& host : live.hosts) {
    HostLook look = engine_->look(dir_of(live, host));
    const auto error = live.start_errors.find(host.name);
    if (error != live.start_errors.end()) look.lost_reason = error->second;
    seen.hosts.push_back({.name = host.name,
                          .life = host.life,
                          .status = std::move(look.status),
                          .is_alive = look.is_alive,
                          .lost_reason = std::move(look.lost_reason)});
  }
  return seen;
}

bool Controller::judge_and_apply(LiveJob& live) {
  const auto verdict = jobs::judge(see(live), live.needs, now_t());
  if (!verdict) return false;
  return apply(live, step_of(live, *verdict));
}

jobdb::PlatformStep Controller::step_of(const LiveJob& live, const jobs::Verdict& verdict) {
  jobdb::PlatformStep step{.job_id = live.row.id,
                           .event = verdict.event,
                           .t = verdict.t,
                           .detail = verdict.detail,
                           .cause = verdict.cause,
                           .exit_code = verdict.exit_code};
  for (const auto& host : live.hosts) {
    if (std::ranges::find(verdict.hosts, host.name) == verdict.hosts.end()) continue;
    step.avoid.push_back(host.slice.number);
    if (verdict.event != PlatformEvent::kHostsFaulty) continue;
    step.hosts.push_back(host);
    step.hosts.back().life = HostLife::kClearing;
  }
  add_results(live, step);
  return step;
}

// What the end of a job leaves: artifacts, and hosts that stay for the next.
void Controller::add_results(const LiveJob& live, jobdb::PlatformStep& step) {
  const auto next = jobs::advance_platform(live.row.state, step.event);
  if (!next || !is_final(next->next.stage)) return;
  for (const auto& host : live.hosts) {
    const HostLook look = engine_->look(dir_of(live, host));
    if (!look.status) continue;
    if (!look.status->model_uri.empty()) step.model_uri = look.status->model_uri;
    if (!look.status->output_uri.empty()) step.output_uri = look.status->output_uri;
  }
  const bool host_at_fault =
      live.row.host_was_at_fault || (step.cause && step.cause != jobs::FaultCause::kUserError);
  const bool has_hosts = live.row.state.stage != JobStage::kQueued;
  if (has_hosts && jobs::may_have_warm_pool(live.row.job, live.needs) &&
      jobs::keeps_warm_pool(next->next.stage, host_at_fault))
    step.keep_hosts_until_t = step.t + static_cast<double>(live.needs.keep_alive_s);
}

bool Controller::apply(LiveJob& live, jobdb::PlatformStep step) {
  const int64_t job_id = live.row.id;
  const std::string name = live.row.job.name;
  const auto done = store_.with([&](auto& db) { return db.apply(step); });
  if (!done) {
    // A request came in between: look again at what is there now.
    const bool was_overtaken = done.error().code == Code::kInvalidArgument;
    if (!was_overtaken) log_warning("job '{}': {}", name, done.error().message);
    if (was_overtaken) reload(job_id);
    return false;
  }
  log_info("job '{}': {} -> {}{}{}", name, to_string(step.event), to_string(done->next.stage),
           step.detail.empty() ? "" : ": ", step.detail);
  reload(job_id);
  return true;
}

}  // namespace yard::engine::internal
