// The program of a host, and what follows it.
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "base/log.h"
#include "host/host_supervisor_internal.h"
#include "host/script_mode.h"

namespace yard::host {
namespace {

using jobs::HostPhase;
using std::chrono::milliseconds;
using Steady = std::chrono::steady_clock;

constexpr milliseconds kInitLookPeriod{5};       // until bubblewrap's init is seen
constexpr std::chrono::seconds kInitEndMax{10};  // the kernel ends its processes in milliseconds
constexpr milliseconds kAbortTime{500};          // to print a traceback

}  // namespace

std::optional<HostEnd> HostSupervisor::install() {
  auto launch = program_plan_->install(*sandbox_);
  if (!launch) return end_of_preparation(launch.error());
  if (!launch->has_value()) return std::nullopt;
  has_installed_ = true;
  const auto code = run_program(**launch, false);
  if (!code) return end_of_preparation(code.error());
  if (stop_asked_) return HostEnd::stopped();
  if (forced_end_) return forced_end_;
  if (*code == 0) return std::nullopt;
  write_failure(folder_, script_failure(program_plan_->install_error_name(), *code,
                                        log_->error_text(), (*launch)->command));
  return HostEnd::failed(folder_, 1, {});
}

// Until every host of the job is ready. One that was replaced meanwhile is met again.
std::optional<HostEnd> HostSupervisor::await_go() {
  if (!plan_.waits_for_go) return std::nullopt;
  while (!go_asked_ && !stop_asked_) {
    if (meet_asked_)
      if (auto end = check_network()) return end;
    if (!report_->status().is_ready)
      report_->change([](jobs::HostStatus& status) { status.is_ready = true; });
    wait_once(-1, options_.status_period);
  }
  if (stop_asked_) return HostEnd::stopped();
  return std::nullopt;
}

std::optional<HostEnd> HostSupervisor::start_and_wait() {
  report_->enter(HostPhase::kStart);
  for (const OutsideFolder& folder : input_.outside)
    sandbox_->add_bind({folder.directory, folder.target, folder.is_writable, false});
  // What is mounted now is not seen in a sandbox that was made before.
  for (const auto& set : input_.channels)
    if (set->has_mounts()) sandbox_->drop_reserve();
  for (const auto& sync : input_.syncs) sync->start();
  auto launch = program_plan_->launch(*sandbox_);
  if (!launch) return end_of_preparation(launch.error());
  if (auto end = install()) return end;
  launch->needs_fresh_python = has_installed_;
  if (auto end = check_network()) return end;
  if (auto end = await_go()) return end;
  report_->enter(HostPhase::kTraining);
  has_run_ = true;
  const auto code = run_program(*launch, true);
  if (!code) return end_of_preparation(code.error());
  return end_of_program(*code, *launch);
}

Result<int> HostSupervisor::run_program(const Launch& wanted, bool may_hang) {
  Launch launch = wanted;
  ProgramGuard guard({.memory_limit_bytes = plan_.memory_limit_bytes,
                      .memory = sandbox_->memory(),
                      .volume_limit_bytes = plan_.volume_limit_bytes,
                      .folders = {folder_.ml(), folder_.dir + "/scratch"},
                      .hang_after_s = may_hang ? plan_.hang_after_s : 0,
                      .line_count = [this] { return log_->line_count(); },
                      .hang_after_steps = may_hang ? plan_.hang_after_steps : 0,
                      .progress = [this] { return log_->progress(); },
                      .hardware_fault = [this] { return gpus_.fault(); }});
  gpus_.watch(plan_.gpus);
  YARD_ASSIGN(launch.output_fd, log_->open_pipe());
  auto child = sandbox_->start(launch);
  log_->close_writer();
  if (!child) return std::move(child).error();
  report_->event(
      "launched",
      {{"pid", child->pid()}, {"command", launch.command}, {"is_warm", sandbox_->started_warm()}});
  program_ = &*child;
  if (stop_asked_) kill_at_ = Steady::now();
  watch_program(*child, guard);
  program_ = nullptr;
  kill_at_.reset();
  const auto exit = child->wait(milliseconds(0));
  YARD_CHECK(exit.has_value());
  await_sandbox_end();
  log_->drain();
  report_->event("exited", {{"code", exit->code}, {"signal", exit->signal}});
  if (!forced_end_) forced_end_ = guard.end_of(exit->code);
  if (const std::string complaint = log_->sandbox_error(); exit->code != 0 && !complaint.empty())
    return complaint.starts_with("bwrap: execvp ")
               ? Error{Code::kInvalidArgument, "the program cannot be run: " + complaint.substr(14)}
               : Error{Code::kUnavailable, "the sandbox cannot be made: " + complaint};
  return exit->code;
}

// A program that has to end is ended at once: it would not notice otherwise.
void HostSupervisor::guard_program(Subprocess& child, ProgramGuard& guard) {
  if (forced_end_ || stop_asked_) return;
  forced_end_ = guard.look(child.pid());
  if (!forced_end_) return;
  log_info("the program is ended: {}", forced_end_->reason);
  if (forced_end_->cause == jobs::HostCause::kHang) show_stacks(child.pid());
  kill_at_ = Steady::now();
}

// Into the log. Python's own view comes last: SIGABRT makes it tell where it is (and end).
void HostSupervisor::show_stacks(int pid) {
  const std::vector<int> pids = sandbox::sandbox_programs(pid);
  log_->note("[yard] what the processes of this host do:");
  for (const std::string& line : stacks_of(pids)) log_->note("[yard] " + line);
  constexpr rlimit kNoCore = {.rlim_cur = 0, .rlim_max = 0};
  for (const int program : pids) ::prlimit(program, RLIMIT_CORE, &kNoCore, nullptr);
  sandbox::signal_sandbox(pid, SIGABRT);
  poll_control(-1, kAbortTime);
}

void HostSupervisor::watch_program(Subprocess& child, ProgramGuard& guard) {
  sandbox_init_.reset();
  const milliseconds period = std::min(guard.period(), options_.status_period);
  Steady::time_point guarded_at = Steady::now();
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
    wait_once(child.pidfd(), sandbox_init_.valid() ? period : kInitLookPeriod);
    check_input();
    if (Steady::now() - guarded_at < period) continue;
    guarded_at = Steady::now();
    guard_program(child, guard);
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
  if (forced_end_) return *forced_end_;
  if (!program_plan_->is_script()) {
    if (code == 0) return HostEnd::completed();
    return HostEnd::failed(folder_, code, log_->error_text(),
                           cause_of_program(launch.command, code));
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

}  // namespace yard::host
