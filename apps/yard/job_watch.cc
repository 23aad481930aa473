#include "job_watch.h"

#include "base/log.h"

namespace yard::app {
namespace {

constexpr std::chrono::seconds kLookPeriod{1};
constexpr int kPageSize = 1000;

observe::ObservedJob observed(const engine::JobView& view) {
  observe::ObservedJob job{.is_training = view.job.kind == engine::JobKind::kTraining,
                           .name = view.job.name,
                           .dir = view.dir,
                           .hosts = view.hosts};
  // A request with expressions that cannot be read was refused.
  if (auto definitions = observe::metric_definitions(view.job.request))
    job.definitions = *std::move(definitions);
  return job;
}

}  // namespace

JobWatch::JobWatch(engine::PlatformControl& control, metrics::MetricStore& store)
    : control_(control), observer_(store, Clock::real()), thread_([this] { run(); }) {}

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
  YARD_ASSIGN(const auto jobs, running_jobs());
  Status observed = observer_.observe(jobs);
  std::string text = observer_.prometheus_text();
  std::vector<observe::LiveHost> live = observer_.live_hosts();
  const std::lock_guard lock(mutex_);
  text_ = std::move(text);
  live_ = std::move(live);
  return observed;
}

Result<std::vector<observe::ObservedJob>> JobWatch::running_jobs() {
  std::vector<observe::ObservedJob> jobs;
  for (const auto kind : {engine::JobKind::kTraining, engine::JobKind::kProcessing})
    for (const char* status : {"InProgress", "Stopping"}) {
      engine::JobFilter filter;
      filter.kind = kind;
      filter.status = status;
      filter.limit = kPageSize;
      do {
        YARD_ASSIGN(const engine::JobPage page, control_.list(filter));
        for (const engine::JobView& view : page.jobs)
          if (!view.hosts.empty()) jobs.push_back(observed(view));
        filter.page_token = page.next_token;
      } while (!filter.page_token.empty());
    }
  return jobs;
}

}  // namespace yard::app
