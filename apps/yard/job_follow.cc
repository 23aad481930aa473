#include "job_follow.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/clock.h"
#include "base/file.h"
#include "host/job_status.h"
#include "jobs/ledger.h"
#include "jobs/retry.h"

namespace yard::app {
namespace {

using Kind = jobs::SupervisorEventKind;
using jobs::HeartbeatEvent;

constexpr std::chrono::milliseconds kTick{200};
constexpr double kLinePeriod_s = 10;  // where the line cannot be rewritten
constexpr size_t kLogLinesShown = 12;

double now_t() {
  return to_unix_seconds(Clock::real().wall_now());
}

size_t terminal_columns() {
  winsize size = {};
  const bool known = ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : 80;
}

// From now on Ctrl-C is read by us instead of ending us.
UniqueFd take_over_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  return UniqueFd(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
}

bool readable_within(int fd, std::chrono::milliseconds timeout) {
  pollfd item{.fd = fd, .events = POLLIN, .revents = 0};
  return ::poll(&item, 1, static_cast<int>(timeout.count())) > 0;
}

std::string last_lines(const std::string& path) {
  const auto text = read_file(path);
  if (!text || text->empty()) return {};
  size_t begin = text->size() - 1;
  for (size_t count = 0; begin > 0; --begin)
    if ((*text)[begin - 1] == '\n' && ++count == kLogLinesShown) break;
  return text->substr(begin);
}

}  // namespace

Result<engine::JobControl> open_control(const Context& context) {
  engine::JobControlOptions options;
  options.home = std::filesystem::absolute(context.yard_home).lexically_normal();
  options.yard_program = context.bin_dir + "/yard";
  options.env = context.env;
  options.env["YARD_HOME"] = options.home;
  return engine::JobControl::open(options);
}

JobFollower::JobFollower(engine::JobControl& control, const Context& context, std::string name,
                         int ranks)
    : control_(control),
      context_(context),
      name_(std::move(name)),
      events_(control.folder(name_).events()) {
  for (int rank = 0; rank < ranks; ++rank)
    heartbeats_.emplace_back(control.folder(name_).heartbeat(rank));
  while (!events_.read_lines().empty()) {
  }
  for (auto& tail : heartbeats_)
    while (!tail.read_lines().empty()) {
    }
}

Status JobFollower::follow() {
  UniqueFd second_signal;
  while (true) {
    // The state first: whatever led to a final one is written by then.
    YARD_ASSIGN(const jobdb::JobRow job, control_.find(name_));
    read_news();
    if (jobs::is_final(job.state)) return outcome(job);
    show_live_line();
    if (!second_signal.valid()) {
      if (!context_.stop.wait_for(kTick)) continue;
      second_signal = take_over_signals();
      show("stopping: the ranks save their state; Ctrl-C again kills them at once");
      ask_stop("stop");
    } else if (!ready_for_kill_ && readable_within(second_signal.get(), kTick)) {
      ready_for_kill_ = true;
      show("killing the ranks; what was done since the last checkpoint is lost");
      ask_stop("kill");
    } else if (ready_for_kill_) {
      Clock::real().sleep_for(kTick, {});
    }
  }
}

void JobFollower::ask_stop(std::string_view word) {
  // Refused when it has ended in the meantime: the next look shows that.
  const Status asked = control_.stop(name_, word);
  if (!asked && asked.error().code != Code::kInvalidArgument) show(asked.error().message);
}

void JobFollower::read_news() {
  std::vector<Line> lines;
  for (const auto& line : events_.read_lines())
    if (const auto event = jobs::parse_supervisor_event(line)) add_event(*event, lines);
  for (size_t rank = 0; rank < heartbeats_.size(); ++rank) {
    for (const auto& line : heartbeats_[rank].read_lines())
      if (const auto heartbeat = jobs::parse_heartbeat(line))
        add_heartbeat(static_cast<int>(rank), *heartbeat, lines);
  }
  std::ranges::stable_sort(lines, {}, &Line::first);
  for (const auto& [t, text] : lines) show(text);
}

void JobFollower::add_event(const jobs::SupervisorEvent& event, std::vector<Line>& lines) {
  const auto add = [&](std::string text) { lines.emplace_back(event.t, std::move(text)); };
  switch (event.kind) {
    case Kind::kFault:
      fault_cause_ = event.cause;
      return add(event.detail);
    case Kind::kRelaunched:
      return add(
          fmt::format("all ranks started again, {:.1f} ms after the last one ended "
                      "(attempt {})",
                      event.respawn_ms, event.attempt + 1));
    case Kind::kRecovered:
      return add(fmt::format("recovered: {:.2f} s from the death to the first new step",
                             event.recovery_s));
    case Kind::kChaosKill:
      return add(fmt::format("killing rank {} on purpose, step {} is done", event.rank,
                             event.global_step));
    case Kind::kStopAsked:
      return add(fmt::format("asked to stop ({})", event.detail));
    case Kind::kSupervisorStarted:
    case Kind::kAttemptStarted:
    case Kind::kRankExited:
    case Kind::kEnded:
      return;
  }
}

void JobFollower::add_heartbeat(int rank, const jobs::Heartbeat& heartbeat,
                                std::vector<Line>& lines) {
  progress_.add(rank, heartbeat);
  const auto add = [&](std::string text) { lines.emplace_back(heartbeat.t, std::move(text)); };
  if (heartbeat.event == HeartbeatEvent::kError)
    return add(fmt::format("rank {}: {}", rank, heartbeat.message));
  if (rank != 0) return;  // all tell the same
  switch (heartbeat.event) {
    case HeartbeatEvent::kStage:
      return add(fmt::format("stage {}/{} {}: {} steps at {} px", heartbeat.stage_index + 1,
                             heartbeat.stage_count, heartbeat.stage, heartbeat.steps,
                             heartbeat.resolution));
    case HeartbeatEvent::kResume:
      return add(fmt::format("resumed from the checkpoint of step {}", heartbeat.global_step));
    case HeartbeatEvent::kCheckpoint:
      return add(fmt::format("checkpoint of step {}", heartbeat.global_step));
    case HeartbeatEvent::kEval:
      return add(
          fmt::format("held-out loss {:.4f} at step {}", heartbeat.loss, heartbeat.global_step));
    case HeartbeatEvent::kSample:
      return add(fmt::format("samples of step {}: {}", heartbeat.global_step, heartbeat.path));
    default:
      return;
  }
}

void JobFollower::show(const std::string& text) {
  const std::string clear = live_line_shown_ ? "\r\x1b[K" : "";
  live_line_shown_ = false;
  fmt::print("{}{}\n", clear, text);
  std::fflush(stdout);
}

void JobFollower::show_live_line() {
  const std::string line = jobs::format_progress(progress_.snapshot());
  if (context_.stdout_is_terminal) {
    live_line_shown_ = true;
    fmt::print("\r\x1b[K{}", line.substr(0, terminal_columns() - 1));
    std::fflush(stdout);
    return;
  }
  if (now_t() - live_line_t_ < kLinePeriod_s) return;
  live_line_t_ = now_t();
  show(line);
}

Status JobFollower::outcome(const jobdb::JobRow& job) {
  const auto snapshot = progress_.snapshot();
  if (snapshot.any()) show(jobs::format_progress(snapshot));
  const auto folder = control_.folder(name_);
  if (const auto ledger = read_ledger(folder)) show("\n" + format_ledger(*ledger));
  if (job.state == jobs::JobState::kSucceeded) {
    show(fmt::format("job {} succeeded: {}", name_, folder.dir));
    return Ok{};
  }
  if (job.state == jobs::JobState::kStopped)
    return Error{Code::kCancelled,
                 fmt::format("job '{}' is stopped; `yard run --resume {}` goes on", name_, name_)};
  if (const std::string text = last_lines(folder.job_log()); !text.empty())
    show("last lines of " + folder.job_log() + ":\n" + text);
  const auto status = host::read_status(folder.status());
  const bool by_death = fault_cause_ == to_string(jobs::Cause::kRankFault) ||
                        fault_cause_ == to_string(jobs::Cause::kUnavailable);
  const bool lost = job.reason.starts_with("lost");
  const auto cause = by_death || lost ? jobs::Cause::kRankFault : jobs::Cause::kUserFault;
  return Error{jobs::code_of_failure(cause, status ? status->exit_code : 70),
               fmt::format("job '{}' failed: {}", name_, job.reason)};
}

Result<jobs::Ledger> read_ledger(const host::JobFolder& folder) {
  YARD_ASSIGN(const std::string text, read_file(folder.ledger()));
  YARD_ASSIGN(const Json json, parse_json(text, folder.ledger()));
  return jobs::ledger_from_json(json, folder.ledger());
}

std::string format_ledger(const jobs::Ledger& ledger) {
  const bool priced = ledger.price_per_host_hour > 0;
  const auto row = [&](std::string_view name, double seconds) {
    const double share = ledger.wall_s > 0 ? 100 * seconds / ledger.wall_s : 0;
    std::string line = fmt::format("  {:<20}{:>11.2f} s{:>8.1f} %", name, seconds, share);
    if (priced) line += fmt::format("{:>12.4f}", ledger.cost_of(seconds));
    return line + "\n";
  };
  std::string out = fmt::format("where the time went{}\n", ledger.complete ? "" : " so far");
  for (size_t i = 0; i < jobs::kPartCount; ++i) {
    std::string name(to_string(static_cast<jobs::Part>(i)));
    std::ranges::replace(name, '_', ' ');
    out += row(name, ledger.parts_s[i]);
  }
  out += row("wall time", ledger.wall_s);
  out += fmt::format("  utilisation {:.1f} %, {} restart{}, {} step{} lost, {} rank{}",
                     100 * ledger.utilisation(), ledger.restarts, ledger.restarts == 1 ? "" : "s",
                     ledger.lost_steps, ledger.lost_steps == 1 ? "" : "s", ledger.ranks,
                     ledger.ranks == 1 ? "" : "s");
  if (priced) {
    out += fmt::format("; {:.4f} at {:g} per host and hour", ledger.cost_of(ledger.wall_s),
                       ledger.price_per_host_hour);
  }
  return out;
}

}  // namespace yard::app
