#include "engine/platform_control.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <thread>

#include "base/file.h"
#include "base/log.h"
#include "engine/controller_internal.h"
#include "engine/job_control.h"
#include "engine/job_view_internal.h"
#include "engine/local_host_engine.h"
#include "host/job_folder.h"

namespace yard::engine {

using internal::Controller;
using internal::PlatformStore;
using internal::PlatformTime;
using jobs::PlatformEvent;

namespace {

// Names have no dot: a processing job may have that of a training job.
std::string job_dir(const std::string& home, const JobRequest& request) {
  const std::string_view suffix = request.kind == JobKind::kProcessing ? ".processing" : "";
  return fmt::format("{}/jobs/{}{}", home, request.name, suffix);
}

// Held until this process ends, in whatever way. Where one was killed while it started a
// supervisor, that holds the lock, too, until its program runs: so it is tried for a while.
Result<UniqueFd> lock_home(const std::string& home) {
  constexpr int kTries = 50;
  constexpr std::chrono::milliseconds kPause(20);
  YARD_ASSIGN(UniqueFd lock, host::open_for_append(home + "/platform.lock"));
  for (int i = 0; i < kTries; ++i) {
    if (::flock(lock.get(), LOCK_EX | LOCK_NB) == 0) return lock;
    if (errno != EWOULDBLOCK) break;
    std::this_thread::sleep_for(kPause);
  }
  if (errno == EWOULDBLOCK)
    return Error{Code::kUnavailable, home + ": another yard serve has it open"};
  return errno_error(home, errno);
}

jobdb::PlatformQuery query_of(const JobFilter& filter) {
  using Sort = jobdb::PlatformQuery::Sort;
  const Sort sort = filter.sort == JobSort::kName     ? Sort::kName
                    : filter.sort == JobSort::kStatus ? Sort::kStatus
                                                      : Sort::kCreated;
  return {.kind = filter.kind,
          .name_contains = filter.name_contains,
          .status = filter.status,
          .warm_pool_status = filter.warm_pool_status,
          .created_after_t = filter.created_after_t,
          .created_before_t = filter.created_before_t,
          .modified_after_t = filter.modified_after_t,
          .modified_before_t = filter.modified_before_t,
          .sort = sort,
          .ascending = filter.ascending,
          .page_token = filter.page_token,
          .limit = filter.limit};
}

std::vector<jobdb::PlatformHostRow> wanted_hosts(const jobs::JobNeeds& needs) {
  std::vector<jobdb::PlatformHostRow> rows;
  for (const auto& host : jobs::named_hosts(needs)) {
    jobdb::PlatformHostRow row{.name = host.name, .group = host.group.name};
    row.slice.instance_type = host.group.instance_type;
    rows.push_back(std::move(row));
  }
  return rows;
}

std::vector<std::string> types_of(const std::vector<jobdb::PlatformHostRow>& rows) {
  std::vector<std::string> types;
  for (const auto& row : rows) types.push_back(row.slice.instance_type);
  return types;
}

std::map<std::string, std::string> supervisor_env(const PlatformOptions& options) {
  auto env = options.env;
  for (const auto& [name, value] : options.store_credentials) env[name] = value;
  return env;
}

}  // namespace

struct PlatformControl::Impl {
  Impl(const PlatformOptions& options, UniqueFd home_lock, jobdb::PlatformDb platform_db)
      : options(options),
        context{.config = &this->options.config.platform,
                .default_python = options.default_python,
                .region = options.region,
                .store_endpoint = options.store_endpoint,
                .slice_faults = &slice_faults},
        lock(std::move(home_lock)),
        store(std::move(platform_db)),
        time(*options.clock) {}

  Result<jobdb::PlatformJobRow> row(JobKind kind, std::string_view name) {
    return store.with([&](auto& db) { return db.find(kind, name); });
  }
  Status check_runnable(const JobRequest& request,
                        const std::vector<jobdb::PlatformHostRow>& rows) const;

  PlatformOptions options;
  SliceFaults slice_faults;
  PlanContext context;
  UniqueFd lock;
  PlatformStore store;
  PlatformTime time;
  std::unique_ptr<Controller> controller;
  StopSource stop;
  std::thread thread;
};

PlatformControl::PlatformControl(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

PlatformControl::~PlatformControl() {
  impl_->stop.request();
  if (impl_->thread.joinable()) impl_->thread.join();
}

Result<std::unique_ptr<PlatformControl>> PlatformControl::open(const PlatformOptions& options) {
  YARD_TRY(make_directories(options.home + "/jobs"));
  YARD_ASSIGN(UniqueFd lock, lock_home(options.home));
  YARD_ASSIGN(jobdb::PlatformDb db, jobdb::PlatformDb::open(database_path(options.home)));
  auto impl = std::make_unique<Impl>(options, std::move(lock), std::move(db));
  YARD_ASSIGN(auto engine, LocalHostEngine::open({.yard_program = options.yard_program,
                                                  .env = supervisor_env(options),
                                                  .slices = options.config.platform.slices}));
  YARD_ASSIGN(impl->controller, Controller::open({.config = options.config.platform,
                                                  .context = impl->context,
                                                  .time = &impl->time},
                                                 impl->store, std::move(engine)));
  Impl* raw = impl.get();
  impl->thread = std::thread([raw] { raw->controller->run(raw->stop.token()); });
  return std::unique_ptr<PlatformControl>(new PlatformControl(std::move(impl)));
}

Status PlatformControl::Impl::check_runnable(
    const JobRequest& request, const std::vector<jobdb::PlatformHostRow>& rows) const {
  YARD_TRY(check_plannable(context, request));
  YARD_TRY(jobs::place_slices(options.config.platform.slices, {}, types_of(rows), {}));
  return Ok{};
}

Status PlatformControl::create(const JobRequest& request) {
  YARD_TRY(jobs::check_job_name(request.name));
  YARD_ASSIGN(const jobs::JobNeeds needs, jobs::job_needs(request));
  const auto rows = wanted_hosts(needs);
  YARD_TRY(impl_->check_runnable(request, rows));
  const std::string dir = job_dir(impl_->options.home, request);
  // What an unknown job left there would be taken for this one's.
  std::error_code ignored;
  if (std::filesystem::exists(dir + "/hosts", ignored))
    return Error{Code::kExhausted, fmt::format("there is a job in {} already", dir)};
  const auto id = impl_->store.with([&](auto& db) -> Result<int64_t> {
    YARD_ASSIGN(const int64_t waiting_count, db.waiting_count());
    if (waiting_count >= kWaitingJobsMax)
      return Error{Code::kUnavailable, fmt::format("{} jobs wait already", waiting_count)};
    return db.create(request, dir, rows, needs.keep_alive_s, impl_->time.now_t());
  });
  if (!id) return id.error();
  impl_->controller->wake(*id);
  return Ok{};
}

Result<JobView> PlatformControl::find(JobKind kind, std::string_view name) {
  auto rows = impl_->store.with([&](auto& db) -> Result<internal::JobRows> {
    YARD_ASSIGN(jobdb::PlatformJobRow row, db.find(kind, name));
    return internal::load_job_rows(db, std::move(row));
  });
  if (!rows) return std::move(rows).error();
  return internal::view_of(*rows, impl_->time.now_t());
}

Result<JobPage> PlatformControl::list(const JobFilter& filter) {
  return impl_->store.with([&](auto& db) -> Result<JobPage> {
    YARD_ASSIGN(auto found, db.list(query_of(filter)));
    JobPage page{.jobs = {}, .next_token = found.next_token};
    for (auto& row : found.jobs) {
      internal::JobRows rows;
      YARD_ASSIGN(rows.hosts, db.hosts(row.id));
      rows.row = std::move(row);
      page.jobs.push_back(internal::view_of(rows, impl_->time.now_t()));
    }
    return page;
  });
}

Status PlatformControl::stop(JobKind kind, std::string_view name) {
  using jobs::JobStage;
  const auto id = impl_->store.with([&](auto& db) -> Result<int64_t> {
    YARD_ASSIGN(const jobdb::PlatformJobRow row, db.find(kind, name));
    const JobStage stage = row.state.stage;
    if (stage == JobStage::kEnding || stage == JobStage::kUploading) return row.id;
    if (is_final(stage))
      return Error{Code::kInvalidArgument, fmt::format("job '{}' has ended already: {}", name,
                                                       jobs::primary_status(row.state))};
    YARD_TRY(db.apply({.job_id = row.id,
                       .event = PlatformEvent::kStopAsked,
                       .t = impl_->time.now_t(),
                       .detail = "stop request"}));
    return row.id;
  });
  if (!id) return id.error();
  impl_->controller->wake(*id);
  return Ok{};
}

Status PlatformControl::remove(JobKind kind, std::string_view name) {
  const auto row = impl_->store.with([&](auto& db) -> Result<jobdb::PlatformJobRow> {
    YARD_ASSIGN(jobdb::PlatformJobRow row, db.find(kind, name));
    if (!is_final(row.state.stage))
      return Error{Code::kInvalidArgument, fmt::format("job '{}' has not ended", name)};
    if (row.warm.state == jobs::WarmState::kAvailable)
      return Error{Code::kInvalidArgument, fmt::format("job '{}' keeps a warm pool", name)};
    YARD_ASSIGN(const auto hosts, db.hosts(row.id));
    for (const auto& host : hosts)
      if (host.life != jobs::HostLife::kFree)
        return Error{Code::kUnavailable,
                     fmt::format("the hosts of job '{}' are being tidied up", name)};
    return row;
  });
  if (!row) return row.error();
  // The folder first: what a crash leaves can be removed again, and no later job finds old files.
  std::error_code error;
  std::filesystem::remove_all(row->dir, error);
  if (error) return Error{Code::kUnavailable, fmt::format("{}: {}", row->dir, error.message())};
  YARD_TRY(impl_->store.with([&](auto& db) { return db.remove(row->id); }));
  impl_->controller->wake(row->id);
  return Ok{};
}

Status PlatformControl::update_keep_alive(std::string_view name, int64_t seconds) {
  const auto id = impl_->store.with([&](auto& db) -> Result<int64_t> {
    YARD_ASSIGN(const jobdb::PlatformJobRow row, db.find(JobKind::kTraining, name));
    const double now_t = impl_->time.now_t();
    const bool has_pool = row.warm.state == jobs::WarmState::kAvailable;
    if (seconds < 0 || (is_final(row.state.stage) && !has_pool))
      return Error{Code::kInvalidArgument, fmt::format("job '{}' has no warm pool", name)};
    const double until_t = now_t + static_cast<double>(seconds);
    YARD_TRY(db.set_keep_alive(row.id, seconds,
                               has_pool ? std::optional<double>(until_t) : std::nullopt, now_t));
    return row.id;
  });
  if (!id) return id.error();
  impl_->controller->wake(*id);
  return Ok{};
}

Status PlatformControl::update_request(std::string_view name, const Json& members) {
  return impl_->store.with([&](auto& db) -> Status {
    YARD_ASSIGN(const jobdb::PlatformJobRow row, db.find(JobKind::kTraining, name));
    Json request = row.job.request;
    request.update(members);
    return db.set_request(row.id, request, impl_->time.now_t());
  });
}

Result<int> PlatformControl::declare_slice_faulty(JobKind kind, std::string_view name,
                                                  std::string_view host) {
  return impl_->store.with([&](auto& db) -> Result<int> {
    YARD_ASSIGN(const jobdb::PlatformJobRow row, db.find(kind, name));
    YARD_ASSIGN(const auto hosts, db.hosts(row.id));
    const auto found = std::ranges::find(hosts, host, &jobdb::PlatformHostRow::name);
    if (found == hosts.end() || !jobs::holds_slice(found->life))
      return Error{Code::kNotFound, fmt::format("job '{}' has no host '{}' now", name, host)};
    impl_->slice_faults.add(found->slice.number);
    return found->slice.number;
  });
}

int PlatformControl::mend_slices() {
  return impl_->slice_faults.clear();
}

Result<std::map<std::string, std::string>> PlatformControl::tags(std::string_view arn) {
  return impl_->store.with([&](auto& db) { return db.tags(arn); });
}

Status PlatformControl::add_tags(std::string_view arn,
                                 const std::map<std::string, std::string>& tags) {
  return impl_->store.with([&](auto& db) { return db.add_tags(arn, tags); });
}

Status PlatformControl::remove_tags(std::string_view arn, const std::vector<std::string>& keys) {
  return impl_->store.with([&](auto& db) { return db.remove_tags(arn, keys); });
}

}  // namespace yard::engine
