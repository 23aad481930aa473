#include "host/host_supervisor.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <future>

#include "base/log.h"
#include "host/host_health.h"
#include "host/host_supervisor_internal.h"
#include "host/job_folder.h"
#include "host/job_layout.h"

namespace yard::host {

using jobs::HostPhase;
using jobs::HostPlan;

namespace {

constexpr uint64_t kPlanBytesMax = uint64_t{64} << 20;

Status make_control(const std::string& path) {
  ::unlink(path.c_str());
  if (::mkfifo(path.c_str(), 0600) != 0) return errno_error(path, errno);
  return Ok{};
}

}  // namespace

HostSupervisor::HostSupervisor(const HostSupervisorOptions& options, jobs::HostFolder folder,
                               HostPlan plan, bool has_mounts, KeptHost kept)
    : options_(options),
      folder_(std::move(folder)),
      plan_(std::move(plan)),
      has_mounts_(has_mounts),
      is_root_(::geteuid() == 0),
      kept_(std::move(kept)) {
  if (!kept_.cache) kept_.cache = std::make_unique<channels::DownloadCache>();
}

Status HostSupervisor::open(const std::optional<jobs::HostStatus>& prior) {
  YARD_TRY(make_control(folder_.control()));
  // Read and write: with a writer of our own the FIFO never reports an end.
  control_.reset(::open(folder_.control().c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
  if (!control_.valid()) return errno_error(folder_.control(), errno);
  YARD_TRY(make_directories(plan_.log_dir));
  YARD_ASSIGN(log_, HostLog::open(plan_.log_dir + "/" + plan_.host + ".log"));
  YARD_ASSIGN(report_, HostReport::open(folder_, Clock::real(), prior));
  storage::S3Options s3;
  s3.endpoint = plan_.store_endpoint;
  s3.region = plan_.store_region;
  s3.environment = options_.env;
  s3.any_key = true;
  s3.stop = store_stop_.token();
  opener_ = std::make_unique<storage::Opener>(s3);
  program_plan_ = std::make_unique<HostProgram>(plan_, folder_, options_.env);
  return Ok{};
}

jobs::HostStatus HostSupervisor::run() {
  report_->event("started", {{"pid", ::getpid()}, {"attempt", plan_.attempt}});
  report_->enter(HostPhase::kHealth);
  if (options_.on_ready) options_.on_ready();
  std::optional<HostEnd> end = prepare();
  if (!end) end = start_and_wait();
  finish(*std::move(end));
  await_word();
  if (has_run_ && upload_asked_ && !release_asked_) upload();
  this->end();
  return report_->status();
}

jobs::HostStatus HostSupervisor::resume() {
  const jobs::HostStatus prior = report_->status();
  report_->event("resumed", {{"pid", ::getpid()}, {"phase", to_string(prior.phase)}});
  report_->change([](jobs::HostStatus&) {});
  if (options_.on_ready) options_.on_ready();
  has_run_ = std::ranges::find(prior.phases, HostPhase::kTraining, &jobs::PhaseChange::phase) !=
             prior.phases.end();
  // Who asked for the upload does not ask again.
  upload_asked_ = prior.phase == HostPhase::kUpload;
  await_word();
  if (has_run_ && upload_asked_ && !release_asked_) upload();
  end();
  return report_->status();
}

void HostSupervisor::end() {
  const bool stays = keep_s_ && sandbox_ && !folder_is_gone();
  input_ = {};
  if (stays) {
    if (const Status ready = keep_ready(); ready)
      report_->change([](jobs::HostStatus& status) { status.is_kept = true; });
    else
      log_warning("this host is not kept: {}", ready.error().message);
  }
  if (!kept_.sandbox) sandbox_.reset();
  report_->enter(HostPhase::kEnded);
}

// A host that only waits for its next attempt gets no interpreter: nobody would wait for it.
Status HostSupervisor::keep_ready() {
  const bool comes_again = release_asked_;
  YARD_TRY(kept_.cache->move_to(folder_.cache()));
  YARD_TRY(sandbox_->make_ready(!comes_again && plan_.kind == jobs::HostJobKind::kTraining));
  kept_.sandbox = std::move(sandbox_);
  return Ok{};
}

// ---- before the program

HostDataOptions HostSupervisor::data_options() {
  HostDataOptions data;
  data.plan = &plan_;
  data.folder = folder_;
  data.open = [this](const std::string& url) { return opener_->open(url); };
  data.cache = kept_.cache.get();
  data.checkpoint_period = options_.checkpoint_period;
  data.on_behind = [this](bool is_behind) {
    report_->event("checkpoint_behind", {{"behind", is_behind}});
    report_->change([&](jobs::HostStatus& status) { status.checkpoint_behind = is_behind; });
  };
  return data;
}

HostSandboxOptions HostSupervisor::sandbox_options() const {
  HostSandboxOptions sandbox;
  sandbox.plan = &plan_;
  sandbox.folder = folder_;
  sandbox.network_dir = plan_.network_dir;
  if (sandbox.network_dir.empty())
    sandbox.network_dir = std::filesystem::path(folder_.dir).parent_path().parent_path();
  sandbox.is_root = is_root_;
  sandbox.may_mount = has_mounts_;
  sandbox.programs_dir = options_.programs_dir;
  sandbox.endpoints = {plan_.store_endpoint};
  for (const char* name : {"AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"})
    if (const auto found = options_.env.find(name); found != options_.env.end())
      sandbox.endpoints.push_back(found->second);
  return sandbox;
}

// Where data can come to, before there is a sandbox.
Status HostSupervisor::prepare_folders() {
  if (kept_.sandbox) {
    const jobs::HostFolder from = kept_.sandbox->folder();
    if (const Status moved = kept_.sandbox->move_to(sandbox_options()); moved) {
      sandbox_ = std::move(kept_.sandbox);
      if (from.dir == folder_.dir) return Ok{};
      std::error_code error;
      std::filesystem::remove_all(folder_.cache(), error);
      if (::rename(from.cache().c_str(), folder_.cache().c_str()) == 0)
        kept_.cache->rebase(from.cache(), folder_.cache());
      return Ok{};
    } else {
      log_warning("what was kept cannot be used: {}", moved.error().message);
      kept_.sandbox.reset();
    }
  }
  return make_layout_folders(plan_.kind, folder_.ml());
}

Status HostSupervisor::set_up_sandbox() {
  if (!sandbox_) {
    YARD_ASSIGN(sandbox_, HostSandbox::open(sandbox_options()));
    if (!sandbox_->network_note().empty()) log_->note("[yard] " + sandbox_->network_note());
  }
  report_->change(
      [&](jobs::HostStatus& status) { status.has_own_network = sandbox_->has_own_network(); });
  return write_layout(plan_, folder_.ml(), sandbox_->machine().network_interface);
}

// Health is checked and the sandbox is made while data comes; the first failure ends all.
Status HostSupervisor::prepare_on_thread(HostInput& input, bool& is_unhealthy) {
  const StopToken stop = work_stop_.token();
  auto fetched = std::async(std::launch::async, [&]() -> Status {
    return fetch_input(data_options(), stop, progress_, input);
  });
  auto made = std::async(std::launch::async, [&]() -> Status { return set_up_sandbox(); });
  auto checks = check_health(plan_.health, folder_.dir, plan_.store_endpoint, stop);
  for (HealthCheck& check : gpus_.check(plan_.gpus)) checks.push_back(std::move(check));
  report_->event("health", {{"checks", to_json(checks)}});
  const Status healthy = judge_health(checks);
  is_unhealthy = !healthy;
  if (healthy)
    report_->enter(HostPhase::kDownload);
  else
    work_stop_.request();
  const Status sandbox = made.get();
  if (!sandbox) work_stop_.request();
  const Status data = fetched.get();
  if (!healthy) return healthy;
  return sandbox ? data : sandbox;
}

std::optional<HostEnd> HostSupervisor::prepare() {
  if (const Status made = prepare_folders(); !made) return end_of_preparation(made.error());
  bool is_unhealthy = false;
  HostInput input;
  const Status prepared =
      run_beside([&](const StopToken&) { return prepare_on_thread(input, is_unhealthy); }, true);
  input_ = std::move(input);
  // What this job did not take of the one before.
  std::error_code error;
  std::filesystem::remove_all(folder_.cache(), error);
  if (stop_asked_) return HostEnd::stopped();
  if (prepared) return std::nullopt;
  return is_unhealthy ? HostEnd::host_fault(prepared.error().message)
                      : end_of_preparation(prepared.error());
}

namespace {

// Held until our process ends, also by a crash: the job's processes never hold it.
Result<UniqueFd> lock_host(const jobs::HostFolder& folder) {
  YARD_ASSIGN(UniqueFd lock, open_for_append(folder.lock()));
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) == 0) return lock;
  if (errno == EWOULDBLOCK)
    return Error{Code::kUnavailable, folder.dir + ": another supervisor runs this host"};
  return errno_error(folder.lock(), errno);
}

Result<HostPlan> read_plan(const jobs::HostFolder& folder) {
  YARD_ASSIGN(const std::string text, read_file(folder.plan(), kPlanBytesMax));
  YARD_ASSIGN(const Json json, parse_json(text, folder.plan()));
  return jobs::host_plan_from_json(json, folder.plan());
}

// Of a supervisor that vanished when its program had ended already; nullopt: it has to begin anew.
Result<std::optional<jobs::HostStatus>> prior_status(const jobs::HostFolder& folder) {
  YARD_ASSIGN(const std::string text, read_file(folder.status(), kPlanBytesMax));
  YARD_ASSIGN(const Json json, parse_json(text, folder.status()));
  YARD_ASSIGN(jobs::HostStatus status, jobs::host_status_from_json(json, folder.status()));
  if (status.phase != HostPhase::kFinished && status.phase != HostPhase::kUpload)
    return Error{Code::kInvalidArgument, folder.dir + ": its program has not ended"};
  return std::optional(std::move(status));
}

// The log of a supervisor lies with the job that it serves.
void log_into(const jobs::HostFolder& folder) {
  const auto log = open_for_append(folder.supervisor_log());
  if (!log) return log_warning("{}", log.error().message);
  ::dup2(log->get(), STDOUT_FILENO);
  ::dup2(log->get(), STDERR_FILENO);
}

}  // namespace

Result<jobs::HostStatus> supervise_host(const HostSupervisorOptions& options) {
  jobs::HostFolder folder{options.dir};
  YARD_ASSIGN(HostPlan plan, read_plan(folder));
  YARD_ASSIGN(UniqueFd lock, lock_host(folder));
  std::optional<jobs::HostStatus> prior;
  if (options.resumes) {
    YARD_ASSIGN(prior, prior_status(folder));
  }
  if (const Status cleaned = clean_host(folder); !cleaned)
    log_warning("{}", cleaned.error().message);
  const Status mounts = sandbox::enter_private_mounts();
  if (!mounts) log_info("{}", mounts.error().message);
  KeptHost kept;
  while (true) {
    std::optional<std::string> next;
    jobs::HostStatus status;
    {
      HostSupervisor supervisor(options, folder, std::move(plan), mounts.has_value(),
                                std::move(kept));
      YARD_TRY(supervisor.open(prior));
      status = prior ? supervisor.resume() : supervisor.run();
      if (status.is_kept) next = supervisor.await_next();
      if (next) kept = supervisor.take_kept();
    }
    if (!next) return status;
    prior.reset();
    if (*next != folder.dir) {
      folder = {*next};
      log_into(folder);
      YARD_ASSIGN(lock, lock_host(folder));
    }
    YARD_ASSIGN(plan, read_plan(folder));
  }
}

}  // namespace yard::host
