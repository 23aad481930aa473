#include "job_watch.h"

#include "base/clock.h"
#include "base/log.h"

namespace yard::app {
namespace {

constexpr std::chrono::seconds kLookPeriod{1};
constexpr int kPageSize = 1000;
// A job may be stored a moment after the time that its end bears.
constexpr double kOverlap_s = 2;
// How long ago a job may have ended whose last lines nobody read, because we did not run.
constexpr double kFirstLookBack_s = 86'400;

observe::ObservedJob observed(const engine::JobView& view) {
  observe::ObservedJob job{.is_training = view.job.kind == engine::JobKind::kTraining,
                           .name = view.job.name,
                           .created_t = view.created_t,
                           .has_ended = view.status != "InProgress" && view.status != "Stopping",
                           .dir = view.dir,
                           .hosts = view.hosts};
  // A request with expressions that cannot be read was refused.
  if (auto definitions = observe::metric_definitions(view.job.request))
    job.definitions = *std::move(definitions);
  return job;
}

}  // namespace

JobWatch::JobWatch(engine::PlatformControl& control, metrics::MetricStore& store)
    : control_(control),
      store_(store),
      observer_(store, Clock::real()),
      looked_t_(to_unix_seconds(Clock::real().wall_now()) - kFirstLookBack_s),
      thread_([this] { run(); }) {}

JobWatch::~JobWatch() {
  stop_.request();
  thread_.join();
}

std::string JobWatch::prometheus_text() {
  const std::lock_guard lock(mutex_);
  return text_;
}

std::vector<observe::LiveHost> JobWatch::live_hosts() {
  const std::lock_guard lock(mutex_);
  return live_;
}

void JobWatch::run() {
  const StopToken stop = stop_.token();
  do {
    const Status looked = look();
    const std::string trouble = looked ? "" : looked.error().message;
    if (!trouble.empty() && trouble != last_trouble_) log_warning("metrics of jobs: {}", trouble);
    last_trouble_ = trouble;
  } while (!stop.wait_for(kLookPeriod));
}

Status JobWatch::look() {
  YARD_ASSIGN(const auto jobs, jobs_to_look_at());
  const std::lock_guard observer_lock(observer_mutex_);
  Status observed = observer_.observe(jobs);
  std::string text = observer_.prometheus_text();
  std::vector<observe::LiveHost> live = observer_.live_hosts();
  const std::lock_guard lock(mutex_);
  text_ = std::move(text);
  live_ = std::move(live);
  return observed;
}

Status JobWatch::add_jobs(engine::JobFilter filter, std::vector<observe::ObservedJob>& jobs) {
  filter.limit = kPageSize;
  do {
    YARD_ASSIGN(const engine::JobPage page, control_.list(filter));
    for (const engine::JobView& view : page.jobs)
      if (!view.hosts.empty()) jobs.push_back(observed(view));
    filter.page_token = page.next_token;
  } while (!filter.page_token.empty());
  return Ok{};
}

// Those that run, and those that ended since the last look.
Result<std::vector<observe::ObservedJob>> JobWatch::jobs_to_look_at() {
  std::vector<observe::ObservedJob> jobs;
  const double now_t = to_unix_seconds(Clock::real().wall_now());
  for (const auto kind : {engine::JobKind::kTraining, engine::JobKind::kProcessing}) {
    for (const char* status : {"InProgress", "Stopping"})
      YARD_TRY(add_jobs({.kind = kind, .status = status}, jobs));
    for (const char* status : {"Completed", "Failed", "Stopped"})
      YARD_TRY(add_jobs({.kind = kind, .status = status, .modified_after_t = looked_t_}, jobs));
  }
  looked_t_ = now_t - kOverlap_s;
  return jobs;
}

std::vector<api::FinalMetric> JobWatch::final_metrics(const engine::JobView& view,
                                                      bool to_the_end) {
  std::vector<api::FinalMetric> found;
  const auto read = [&]() -> Status {
    const observe::ObservedJob job = observed(view);
    if (to_the_end) {
      const std::lock_guard lock(observer_mutex_);
      YARD_TRY(observer_.settle(job));
    }
    for (const auto& definition : job.definitions) {
      YARD_ASSIGN(const auto last, store_.last(observe::metric_key(job, definition.name)));
      // One of an earlier job with this name is not this one's.
      if (last && last->t >= view.created_t)
        found.push_back({definition.name, last->value, last->t});
    }
    return Ok{};
  };
  if (const Status done = read(); !done)
    log_warning("metrics of job '{}': {}", view.job.name, done.error().message);
  return found;
}

}  // namespace yard::app
