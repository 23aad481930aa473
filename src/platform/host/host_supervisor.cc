#include "host/host_supervisor.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <future>
#include <thread>

#include "base/file.h"
#include "base/log.h"
#include "host/host_data.h"
#include "host/host_health.h"
#include "host/host_log.h"
#include "host/host_outcome.h"
#include "host/host_program.h"
#include "host/host_report.h"
#include "host/host_sandbox.h"
#include "host/job_folder.h"
#include "host/job_layout.h"
#include "host/script_mode.h"
#include "storage/location.h"

namespace yard::host {
namespace {

using jobs::HostPhase;
using jobs::HostPlan;
using std::chrono::milliseconds;
using Steady = std::chrono::steady_clock;

constexpr uint64_t kPlanBytesMax = uint64_t{64} << 20;
constexpr milliseconds kInitLookPeriod{5};       // until bubblewrap's init is seen
constexpr std::chrono::seconds kInitEndMax{10};  // the kernel ends its processes in milliseconds

class HostSupervisor {
 public:
  HostSupervisor(const HostSupervisorOptions& options, HostPlan plan, bool has_mounts)
      : options_(options), folder_{options.dir}, plan_(std::move(plan)), has_mounts_(has_mounts) {}

  Status open();
  jobs::HostStatus run();

 private:
  // What has come through the control FIFO, and its effect on what runs.
  void read_control();
  bool folder_is_gone() const;
  void ask_stop(std::string_view by);
  void wait_once(int fd, milliseconds timeout);
  // `work` on a thread of its own, while control is read; its token is stopped by a stop where
  // `stop_ends_it`, by "kill" always.
  Status run_beside(const std::function<Status(const StopToken& stop)>& work, bool stop_ends_it);

  std::optional<HostEnd> prepare();
  Status prepare_on_thread(HostInput& input, bool& is_unhealthy);
  std::optional<HostEnd> start_and_wait();
  Status set_up_sandbox();
  std::optional<HostEnd> install();
  Result<int> run_program(const Launch& launch);
  void watch_program(Subprocess& child);
  void await_sandbox_end();
  void check_input();
  HostEnd end_of_program(int code, const Launch& launch);
  void save_checkpoints(HostEnd& end);
  void note_progress(jobs::HostStatus& status) const;
  void finish(HostEnd end);
  void await_word();
  void upload();
  HostDataOptions data_options();

  const HostSupervisorOptions& options_;
  const jobs::HostFolder folder_;
  const HostPlan plan_;
  const bool has_mounts_;
  const bool is_root_ = ::geteuid() == 0;
  std::string job_dir_;
  UniqueFd control_;
  std::unique_ptr<HostReport> report_;
  std::unique_ptr<HostLog> log_;
  std::unique_ptr<storage::Opener> opener_;
  StopSource store_stop_;

  std::unique_ptr<HostProgram> program_plan_;

  bool stop_asked_ = false;
  bool kill_asked_ = false;
  bool upload_asked_ = false;
  bool release_asked_ = false;
  bool token_seen_ = false;
  bool has_run_ = false;  // else there are no results
  bool is_working_ = false;
  bool stop_ends_work_ = false;
  StopSource work_stop_;
  Subprocess* program_ = nullptr;
  UniqueFd sandbox_init_;
  std::optional<Steady::time_point> kill_at_;
  std::optional<Error> input_error_;
  Steady::time_point refreshed_at_{};

  channels::ChannelProgress progress_;
  HostInput input_;
  // After what it shows, so that it ends before: mounts lie below its folders.
  std::unique_ptr<HostSandbox> sandbox_;
};

Status make_control(const std::string& path) {
  ::unlink(path.c_str());
  if (::mkfifo(path.c_str(), 0600) != 0) return errno_error(path, errno);
  return Ok{};
}

Status HostSupervisor::open() {
  job_dir_ = std::filesystem::path(folder_.dir).parent_path().parent_path();
  YARD_TRY(make_control(folder_.control()));
  // Read and write: with a writer of our own the FIFO never reports an end.
  control_.reset(::open(folder_.control().c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
  if (!control_.valid()) return errno_error(folder_.control(), errno);
  YARD_TRY(make_directories(plan_.log_dir));
  YARD_ASSIGN(log_, HostLog::open(plan_.log_dir + "/" + plan_.host + ".log"));
  YARD_ASSIGN(report_, HostReport::open(folder_, Clock::real()));
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
  sandbox_.reset();
  input_ = {};
  report_->enter(HostPhase::kEnded);
  return report_->status();
}

// ---- control

void HostSupervisor::read_control() {
  std::array<char, 4096> buffer;
  const ssize_t got = ::read(control_.get(), buffer.data(), buffer.size());
  if (got <= 0) return;
  std::string_view words(buffer.data(), size_t(got));
  while (!words.empty()) {
    const std::string_view word = words.substr(0, words.find('\n'));
    words.remove_prefix(std::min(words.size(), word.size() + 1));
    if (word.empty()) continue;
    report_->event("control", {{"word", word}});
    if (word == "upload") upload_asked_ = true;
    if (word == "release") release_asked_ = true;
    // Nobody wants what one that is released still does.
    if (word == "kill" || word == "release") kill_asked_ = true;
    if (word == "stop" || kill_asked_) ask_stop(word);
  }
}

void HostSupervisor::ask_stop(std::string_view by) {
  log_info("stop: {}", by);
  const bool is_first = !stop_asked_;
  stop_asked_ = true;
  if (is_working_ && (stop_ends_work_ || kill_asked_)) {
    work_stop_.request();
    store_stop_.request();  // requests that wait for a store that is away
  }
  if (program_ == nullptr) return;
  if (kill_asked_) {
    kill_at_ = Steady::now();
  } else if (is_first) {
    sandbox::signal_sandbox(program_->pid(), SIGTERM);
    kill_at_ = Steady::now() + std::chrono::duration_cast<Steady::duration>(
                                   std::chrono::duration<double>(plan_.stop_grace_s));
  }
}

void HostSupervisor::wait_once(int fd, milliseconds timeout) {
  if (kill_at_ && program_ != nullptr) {
    const auto left = std::chrono::ceil<milliseconds>(*kill_at_ - Steady::now());
    timeout = std::clamp(left, milliseconds(0), timeout);
  }
  std::array<pollfd, 3> items = {
      {{.fd = control_.get(), .events = POLLIN, .revents = 0},
       {.fd = token_seen_ ? -1 : options_.stop.fd(), .events = POLLIN, .revents = 0},
       {.fd = fd, .events = POLLIN, .revents = 0}}};
  const int ready = ::poll(items.data(), items.size(), int(timeout.count()));
  YARD_CHECK(ready >= 0 || errno == EINTR || errno == ENOMEM);
  if (items[0].revents != 0) read_control();
  if (!token_seen_ && options_.stop.stopped()) {
    token_seen_ = true;
    ask_stop("signal");
  }
  if (Steady::now() - refreshed_at_ < options_.status_period) return;
  refreshed_at_ = Steady::now();
  if (!release_asked_ && folder_is_gone()) {
    release_asked_ = kill_asked_ = true;
    ask_stop("the job's folder is gone");
  }
  report_->change([this](jobs::HostStatus& status) { note_progress(status); });
}

// With it went whoever could have said a word to us.
bool HostSupervisor::folder_is_gone() const {
  return ::access(folder_.control().c_str(), F_OK) != 0 && errno == ENOENT;
}

void HostSupervisor::note_progress(jobs::HostStatus& status) const {
  status.downloaded_bytes = progress_.done_bytes;
  status.total_bytes = progress_.total_bytes;
  status.checkpoint_bytes = 0;
  for (const auto& sync : input_.syncs) status.checkpoint_bytes += sync->uploaded_bytes();
}

Status HostSupervisor::run_beside(const std::function<Status(const StopToken& stop)>& work,
                                  bool stop_ends_it) {
  work_stop_ = StopSource();
  is_working_ = true;
  stop_ends_work_ = stop_ends_it;
  if (stop_asked_ && stop_ends_it) work_stop_.request();
  const StopSource ended;
  Status result = Ok{};
  std::thread thread([&] {
    result = work(work_stop_.token());
    ended.request();
  });
  while (!ended.token().stopped()) wait_once(ended.token().fd(), options_.status_period);
  thread.join();
  is_working_ = false;
  return result;
}

// ---- before the program

HostDataOptions HostSupervisor::data_options() {
  HostDataOptions data;
  data.plan = &plan_;
  data.folder = folder_;
  data.open = [this](const std::string& url) { return opener_->open(url); };
  data.checkpoint_period = options_.checkpoint_period;
  data.on_behind = [this](bool is_behind) {
    report_->event("checkpoint_behind", {{"behind", is_behind}});
    report_->change([&](jobs::HostStatus& status) { status.checkpoint_behind = is_behind; });
  };
  return data;
}

// Health is checked while data comes; the first failure ends both.
Status HostSupervisor::prepare_on_thread(HostInput& input, bool& is_unhealthy) {
  const StopToken stop = work_stop_.token();
  auto fetched = std::async(std::launch::async, [&]() -> Status {
    return fetch_input(data_options(), stop, progress_, input);
  });
  const auto checks = check_health(plan_.health, folder_.dir, plan_.store_endpoint, stop);
  report_->event("health", {{"checks", to_json(checks)}});
  const Status healthy = judge_health(checks);
  is_unhealthy = !healthy;
  if (healthy)
    report_->enter(HostPhase::kDownload);
  else
    work_stop_.request();
  const Status data = fetched.get();
  return healthy ? data : healthy;
}

std::optional<HostEnd> HostSupervisor::prepare() {
  if (const Status made = set_up_sandbox(); !made) return end_of_preparation(made.error());
  bool is_unhealthy = false;
  HostInput input;
  const Status prepared =
      run_beside([&](const StopToken&) { return prepare_on_thread(input, is_unhealthy); }, true);
  input_ = std::move(input);
  if (stop_asked_) return HostEnd::stopped();
  if (prepared) return std::nullopt;
  return is_unhealthy ? HostEnd::host_fault(prepared.error().message)
                      : end_of_preparation(prepared.error());
}

Status HostSupervisor::set_up_sandbox() {
  HostSandboxOptions sandbox;
  sandbox.plan = &plan_;
  sandbox.folder = folder_;
  sandbox.job_dir = job_dir_;
  sandbox.is_root = is_root_;
  sandbox.may_mount = has_mounts_;
  sandbox.endpoints = {plan_.store_endpoint};
  for (const char* name : {"AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"})
    if (const auto found = options_.env.find(name); found != options_.env.end())
      sandbox.endpoints.push_back(found->second);
  YARD_ASSIGN(sandbox_, HostSandbox::open(sandbox));
  if (!options_.programs_dir.empty()) sandbox_->add_programs(options_.programs_dir);
  if (!sandbox_->network_note().empty()) log_->note("[yard] " + sandbox_->network_note());
  report_->change(
      [&](jobs::HostStatus& status) { status.has_own_network = sandbox_->has_own_network(); });
  return write_layout(plan_, folder_.ml(), sandbox_->machine().network_interface);
}

// ---- the program

std::optional<HostEnd> HostSupervisor::install() {
  auto launch = program_plan_->install(*sandbox_);
  if (!launch) return end_of_preparation(launch.error());
  if (!launch->has_value()) return std::nullopt;
  const auto code = run_program(**launch);
  if (!code) return end_of_preparation(code.error());
  if (stop_asked_) return HostEnd::stopped();
  if (*code == 0) return std::nullopt;
  write_failure(folder_, script_failure(program_plan_->install_error_name(), *code,
                                        log_->error_text(), (*launch)->command));
  return HostEnd::failed(folder_, 1, {});
}

std::optional<HostEnd> HostSupervisor::start_and_wait() {
  report_->enter(HostPhase::kStart);
  for (const OutsideFolder& folder : input_.outside)
    sandbox_->add_bind({folder.directory, folder.target, folder.is_writable, false});
  for (const auto& sync : input_.syncs) sync->start();
  auto launch = program_plan_->launch(*sandbox_);
  if (!launch) return end_of_preparation(launch.error());
  if (auto end = install()) return end;
  report_->enter(HostPhase::kTraining);
  has_run_ = true;
  const auto code = run_program(*launch);
  if (!code) return end_of_preparation(code.error());
  return end_of_program(*code, *launch);
}

Result<int> HostSupervisor::run_program(const Launch& wanted) {
  Launch launch = wanted;
  YARD_ASSIGN(launch.output_fd, log_->open_pipe());
  auto child = sandbox_->start(launch);
  log_->close_writer();
  if (!child) return std::move(child).error();
  report_->event("launched", {{"pid", child->pid()}, {"command", launch.command}});
  program_ = &*child;
  if (stop_asked_) kill_at_ = Steady::now();
  watch_program(*child);
  program_ = nullptr;
  kill_at_.reset();
  const auto exit = child->wait(milliseconds(0));
  YARD_CHECK(exit.has_value());
  await_sandbox_end();
  log_->drain();
  report_->event("exited", {{"code", exit->code}, {"signal", exit->signal}});
  if (const std::string complaint = log_->sandbox_error(); exit->code != 0 && !complaint.empty())
    return complaint.starts_with("bwrap: execvp ")
               ? Error{Code::kInvalidArgument, "the program cannot be run: " + complaint.substr(14)}
               : Error{Code::kUnavailable, "the sandbox cannot be made: " + complaint};
  return exit->code;
}

void HostSupervisor::watch_program(Subprocess& child) {
  sandbox_init_.reset();
  while (!child.wait(milliseconds(0))) {
    if (kill_at_ && Steady::now() >= *kill_at_) {
      kill_at_.reset();
      // bubblewrap's init ends with it, and with that all processes of the sandbox.
      if (const Status killed = child.kill_group(SIGKILL); !killed)
        log_error("{}", killed.error().message);
    }
    if (!sandbox_init_.valid())
      for (const int pid : sandbox::children_of(child.pid()))
        sandbox_init_.reset(int(::syscall(SYS_pidfd_open, pid, 0)));
    wait_once(child.pidfd(), sandbox_init_.valid() ? options_.status_period : kInitLookPeriod);
    check_input();
  }
}

// What reads a pipe that ended too soon must not take it for the end of its data.
void HostSupervisor::check_input() {
  if (input_error_) return;
  for (const auto& set : input_.channels)
    if (const Status status = set->status(); !status) {
      input_error_ = status.error();
      kill_at_ = Steady::now();
    }
}

void HostSupervisor::await_sandbox_end() {
  if (!sandbox_init_.valid()) return;
  pollfd item{.fd = sandbox_init_.get(), .events = POLLIN, .revents = 0};
  if (::poll(&item, 1, int(milliseconds(kInitEndMax).count())) == 0)
    log_error("processes of the sandbox do not end");
  sandbox_init_.reset();
}

HostEnd HostSupervisor::end_of_program(int code, const Launch& launch) {
  if (stop_asked_) return HostEnd::stopped(code);
  if (input_error_) return end_of_preparation(*input_error_);
  if (!program_plan_->is_script()) {
    if (code == 0) return HostEnd::completed();
    return HostEnd::failed(folder_, code, log_->error_text());
  }
  if (code == 0) {
    if (const Status written = write_file_atomic(folder_.ml() + "/output/success", ""); !written)
      log_warning("{}", written.error().message);
    return HostEnd::completed();
  }
  write_failure(folder_,
                script_failure("ExecuteUserScriptError", code, log_->error_text(), launch.command));
  // The toolkit's own code, whatever the script's was.
  return HostEnd::failed(folder_, 1, {});
}

// ---- after the program

void HostSupervisor::save_checkpoints(HostEnd& end) {
  if (!has_run_) return;
  const Status saved = run_beside(
      [&](const StopToken&) -> Status {
        Status first = Ok{};
        for (const auto& sync : input_.syncs)
          if (const Status done = sync->finish(); !done && first) first = done;
        return first;
      },
      false);
  if (saved) return;
  log_->note("[yard] checkpoints were not all uploaded: " + saved.error().message);
  if (end.outcome == jobs::HostOutcome::kCompleted) end = end_of_upload(saved.error());
}

void HostSupervisor::finish(HostEnd end) {
  save_checkpoints(end);
  input_.channels.clear();
  report_->change([&](jobs::HostStatus& status) {
    status.outcome = end.outcome;
    status.exit_code = end.exit_code;
    status.failure_reason = end.reason;
    status.cause = end.cause;
    note_progress(status);
  });
  // Its reader may wait for nothing but the end.
  if (!end.reason.empty() && end.outcome == jobs::HostOutcome::kFailed)
    log_->note("[yard] " + end.reason.substr(0, end.reason.find('\n')));
  log_->drain();
  report_->enter(HostPhase::kFinished);
}

void HostSupervisor::await_word() {
  while (!upload_asked_ && !release_asked_) wait_once(-1, options_.status_period);
}

void HostSupervisor::upload() {
  report_->enter(HostPhase::kUpload);
  jobs::HostStatus sent;
  const Status done = run_beside(
      [&](const StopToken& stop) { return send_results(data_options(), stop, sent); }, false);
  report_->change([&](jobs::HostStatus& status) {
    status.model_uri = sent.model_uri;
    status.output_uri = sent.output_uri;
    if (done || status.outcome != jobs::HostOutcome::kCompleted) return;
    const HostEnd end = end_of_upload(done.error());
    status.outcome = end.outcome;
    status.failure_reason = end.reason;
    status.cause = end.cause;
  });
  if (!done) log_->note("[yard] results were not uploaded: " + done.error().message);
  log_->drain();
}

// Held until our process ends, also by a crash: the job's processes never hold it.
Result<UniqueFd> lock_host(const jobs::HostFolder& folder) {
  YARD_ASSIGN(UniqueFd lock, open_for_append(folder.lock()));
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) == 0) return lock;
  if (errno == EWOULDBLOCK)
    return Error{Code::kUnavailable, folder.dir + ": another supervisor runs this host"};
  return errno_error(folder.lock(), errno);
}

}  // namespace

Result<jobs::HostStatus> supervise_host(const HostSupervisorOptions& options) {
  const jobs::HostFolder folder{options.dir};
  YARD_ASSIGN(const std::string text, read_file(folder.plan(), kPlanBytesMax));
  YARD_ASSIGN(const Json json, parse_json(text, folder.plan()));
  YARD_ASSIGN(HostPlan plan, jobs::host_plan_from_json(json, folder.plan()));
  YARD_ASSIGN(const UniqueFd lock, lock_host(folder));
  if (const Status cleaned = clean_host(folder); !cleaned)
    log_warning("{}", cleaned.error().message);
  const Status mounts = sandbox::enter_private_mounts();
  if (!mounts) log_info("{}", mounts.error().message);
  HostSupervisor supervisor(options, std::move(plan), mounts.has_value());
  YARD_TRY(supervisor.open());
  return supervisor.run();
}

}  // namespace yard::host
