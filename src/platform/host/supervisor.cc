#include "host/supervisor.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <utility>

#include "base/exit_code.h"
#include "base/log.h"
#include "host/attempt.h"
#include "host/job_folder.h"
#include "host/job_record.h"
#include "host/job_status.h"
#include "jobs/retry.h"

namespace yard::host {
namespace {

using jobs::Cause;
using jobs::JobEvent;
using jobs::JobState;
using Kind = jobs::SupervisorEventKind;
using Monotonic = Clock::Monotonic;
using std::chrono::milliseconds;

constexpr milliseconds kStatusPeriod{1000};
constexpr milliseconds kLedgerPeriod{5000};

double to_ms(std::chrono::nanoseconds duration) {
  return std::chrono::duration<double, std::milli>(duration).count();
}

class Supervisor {
 public:
  Supervisor(const SupervisorOptions& options, jobs::JobSpec spec, JobRecord record, LogFile log)
      : options_(options),
        folder_{options.job_dir},
        spec_(std::move(spec)),
        record_(std::move(record)),
        job_log_(std::move(log)),
        spares_({.spec = &spec_,
                 .env = options.env,
                 .cores = options.cores,
                 .core_count = std::max<size_t>(1, options.cores.size()),
                 .start_after = options.spares_after,
                 .clock = options.clock}) {}

  Status open();
  SupervisorResult run();

 private:
  // What we are waiting for, besides ranks that train.
  enum class Ending { kNone, kFault, kStop };

  jobs::Transition advance(JobEvent event, int retries_left, const std::string& detail);
  void start_attempt();
  void note_attempt_started();
  void poll_once();
  milliseconds poll_timeout() const;
  void take_heartbeats();
  void on_heartbeat(int rank, const jobs::Heartbeat& heartbeat);
  void on_exit(const jobs::RankExit& exit);
  void begin_ending(Ending ending, milliseconds grace);
  void end_attempt();
  void note_fault(const jobs::AttemptOutcome& outcome);
  void end_after_fault(const jobs::AttemptOutcome& outcome);
  void end_job(JobEvent event, const std::string& detail, int exit_code);
  void read_control();
  void ask_stop(const std::string& by);
  void kill_when_due();
  void write_files_when_due();
  void write_status();
  void look_after_spares();

  const SupervisorOptions& options_;
  const JobFolder folder_;
  const jobs::JobSpec spec_;
  JobRecord record_;
  LogFile job_log_;
  UniqueFd control_;
  UniqueFd heartbeat_watch_;

  SpareRanks spares_;
  JobState state_ = JobState::kStarting;
  std::optional<Attempt> attempt_;
  Ending ending_ = Ending::kNone;
  std::optional<Monotonic> kill_at_;
  bool stop_token_seen_ = false;

  Monotonic fault_at_;            // of the death that ends, or ended, the last attempt
  Monotonic last_exit_at_;        // of that attempt's last rank
  double fault_t_ = 0;            // 0: no fault in this run, so nothing to recover from
  bool awaits_recovery_ = false;  // restarted, no new step yet
  int64_t best_step_before_ = 0;  // of all attempts before this one
  bool attempt_was_heard_ = false;
  bool chaos_done_ = false;
  jobs::RetryHistory history_;

  JobStatus status_;
  Monotonic status_at_;
  Monotonic ledger_at_;
};

Status Supervisor::open() {
  // Read and write: with a writer of our own the FIFO never reports an end.
  control_.reset(::open(folder_.control().c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
  if (!control_.valid()) return errno_error(folder_.control(), errno);
  heartbeat_watch_.reset(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  // Without a watch, as on some network file systems, the period of status.json has to do.
  if (!heartbeat_watch_.valid() ||
      ::inotify_add_watch(heartbeat_watch_.get(), folder_.heartbeats().c_str(), IN_MODIFY) < 0)
    log_warning("{}: heartbeats are not watched", folder_.heartbeats());
  chaos_done_ = record_.chaos_done();
  status_.name = spec_.name;
  status_.supervisor = identify_self();
  return Ok{};
}

SupervisorResult Supervisor::run() {
  status_.started_t = record_.now_t();
  record_.note({.t = status_.started_t, .kind = Kind::kSupervisorStarted, .pid = ::getpid()});
  start_attempt();
  while (!jobs::is_final(state_)) poll_once();
  return {state_, status_.reason};
}

jobs::Transition Supervisor::advance(JobEvent event, int retries_left, const std::string& detail) {
  const auto transition = jobs::advance(state_, event, retries_left);
  YARD_CHECK(transition.has_value());  // every event below is raised in states that take it
  const Status recorded = options_.record ? options_.record(event, retries_left, detail) : Ok{};
  if (!recorded) log_warning("not recorded: {}", recorded.error().message);
  log_info("{} -> {} ({}{}{})", to_string(state_), to_string(transition->next), to_string(event),
           detail.empty() ? "" : ": ", detail);
  state_ = transition->next;
  return *transition;
}

void Supervisor::start_attempt() {
  record_.mend_heartbeat_files();
  best_step_before_ = record_.best_step();
  attempt_was_heard_ = false;
  ending_ = Ending::kNone;
  kill_at_.reset();
  status_.attempt = record_.next_attempt();
  auto port = find_free_port();
  auto launched = port ? Attempt::launch({.spec = &spec_,
                                          .job_log = &job_log_,
                                          .plan = {status_.attempt, *port, options_.job_dir},
                                          .env = options_.env,
                                          .cores = options_.cores,
                                          .core_count = std::max<size_t>(1, options_.cores.size()),
                                          .spares = &spares_})
                       : Result<Attempt>(port.error());
  if (!launched)
    return end_job(JobEvent::kUserFault, launched.error().message,
                   exit_code_of(launched.error().code));
  attempt_.emplace(*std::move(launched));
  spares_.clear();
  status_.master_port = *port;
  note_attempt_started();
}

void Supervisor::note_attempt_started() {
  const auto spawned_at = options_.clock->now();
  record_.note({.kind = Kind::kAttemptStarted,
                .attempt = status_.attempt,
                .master_port = status_.master_port,
                .pids = attempt_->pids()});
  if (state_ == JobState::kRestarting) {
    ++status_.restarts;
    awaits_recovery_ = true;
    record_.note({.kind = Kind::kRelaunched,
                  .attempt = status_.attempt,
                  .spare_count = attempt_->spare_count(),
                  .respawn_ms = to_ms(spawned_at - last_exit_at_),
                  .kill_ms = to_ms(last_exit_at_ - fault_at_)});
  }
  advance(JobEvent::kRanksStarted, 0, {});
  write_status();
}

milliseconds Supervisor::poll_timeout() const {
  const auto now = options_.clock->now();
  Monotonic due = status_at_ + kStatusPeriod;
  if (kill_at_) due = std::min(due, *kill_at_);
  // Rounded up: a wait that ends too soon would spin.
  return std::max(milliseconds(0), std::chrono::ceil<milliseconds>(due - now));
}

void Supervisor::poll_once() {
  std::vector<pollfd> items = {
      {.fd = control_.get(), .events = POLLIN, .revents = 0},
      {.fd = heartbeat_watch_.get(), .events = POLLIN, .revents = 0},
      {.fd = stop_token_seen_ ? -1 : options_.stop.fd(), .events = POLLIN, .revents = 0}};
  attempt_->add_poll_items(items);
  const int ready = ::poll(items.data(), items.size(), static_cast<int>(poll_timeout().count()));
  YARD_CHECK(ready >= 0 || errno == EINTR || errno == EAGAIN || errno == ENOMEM);

  for (const auto& exit : attempt_->reap()) on_exit(exit);
  if (!attempt_->any_running()) return end_attempt();
  attempt_->pump_logs();
  if (items[1].revents != 0 || options_.clock->now() - status_at_ >= kStatusPeriod)
    take_heartbeats();
  if (items[0].revents != 0) read_control();
  if (!stop_token_seen_ && options_.stop.stopped()) {
    stop_token_seen_ = true;
    ask_stop("signal");
  }
  kill_when_due();
  write_files_when_due();
}

void Supervisor::take_heartbeats() {
  std::array<char, 4096> ignored;  // that something changed is all we want to know
  while (heartbeat_watch_.valid() &&
         ::read(heartbeat_watch_.get(), ignored.data(), ignored.size()) > 0) {
  }
  record_.read_heartbeats([this](int rank, const jobs::Heartbeat& h) { on_heartbeat(rank, h); });
}

void Supervisor::on_heartbeat(int rank, const jobs::Heartbeat& heartbeat) {
  attempt_was_heard_ = true;
  if (heartbeat.event == jobs::HeartbeatEvent::kError)
    log_error("rank {}: {}", rank, heartbeat.message);
  if (heartbeat.event != jobs::HeartbeatEvent::kStep) return;
  if (awaits_recovery_) {
    awaits_recovery_ = false;
    record_.note({.kind = Kind::kRecovered,
                  .attempt = status_.attempt,
                  .recovery_s = heartbeat.t - fault_t_});
  }
  if (spec_.chaos && !chaos_done_ && heartbeat.global_step >= spec_.chaos->after_step &&
      attempt_->any_running()) {
    chaos_done_ = true;
    record_.note({.kind = Kind::kChaosKill,
                  .rank = spec_.chaos->kill_rank,
                  .global_step = heartbeat.global_step});
    attempt_->kill_rank(spec_.chaos->kill_rank);
  }
}

void Supervisor::on_exit(const jobs::RankExit& exit) {
  last_exit_at_ = options_.clock->now();
  record_.note({.kind = Kind::kRankExited,
                .attempt = status_.attempt,
                .rank = exit.rank,
                .code = exit.code,
                .signal = exit.signal});
  if (jobs::is_good_exit(exit) || ending_ != Ending::kNone) return;
  fault_at_ = last_exit_at_;
  const double fault_t = record_.now_t();
  if (jobs::classify_attempt({exit}).cause == Cause::kStopped) {
    // It saved its state and left as if asked; the others are given the time to do so too.
    return begin_ending(Ending::kStop, std::chrono::duration_cast<milliseconds>(
                                           std::chrono::duration<double>(spec_.stop_grace_s)));
  }
  begin_ending(Ending::kFault, options_.fault_grace);
  take_heartbeats();  // what was told before the death belongs before it
  fault_t_ = fault_t;
  record_.note_in_ledger({.t = fault_t, .kind = Kind::kFault, .attempt = status_.attempt});
}

void Supervisor::begin_ending(Ending ending, milliseconds grace) {
  ending_ = ending;
  kill_at_ = options_.clock->now() + grace;
  attempt_->terminate_running();
}

void Supervisor::kill_when_due() {
  if (!kill_at_ || options_.clock->now() < *kill_at_) return;
  kill_at_.reset();
  attempt_->kill_running();
}

void Supervisor::end_attempt() {
  take_heartbeats();
  attempt_->finish();
  const auto outcome = jobs::classify_attempt(attempt_->exits());
  const int code = outcome.decisive.code;
  if (outcome.cause != Cause::kDone && outcome.cause != Cause::kStopped) note_fault(outcome);
  if (outcome.cause == Cause::kDone) return end_job(JobEvent::kAllDone, {}, 0);
  if (outcome.cause == Cause::kUserFault)
    return end_job(JobEvent::kUserFault, outcome.detail, code);
  if (state_ == JobState::kStopping || outcome.cause == Cause::kStopped)
    return end_job(JobEvent::kRanksStopped, "stopped on request; " + outcome.detail, code);
  end_after_fault(outcome);
}

// The line is written now that the cause is known; its time is that of the death.
void Supervisor::note_fault(const jobs::AttemptOutcome& outcome) {
  jobs::SupervisorEvent event{.t = fault_t_,
                              .kind = Kind::kFault,
                              .attempt = status_.attempt,
                              .rank = outcome.decisive.rank,
                              .cause = std::string(to_string(outcome.cause)),
                              .detail = outcome.detail};
  if (ending_ != Ending::kFault) {  // it came while the ranks were stopping
    fault_t_ = event.t = record_.now_t();
    fault_at_ = last_exit_at_;
    record_.note_in_ledger(event);
  }
  record_.note_line(event);
}

void Supervisor::end_after_fault(const jobs::AttemptOutcome& outcome) {
  const bool stalled = attempt_was_heard_ && record_.best_step() <= best_step_before_;
  history_.stalled_in_a_row = stalled ? history_.stalled_in_a_row + 1 : 0;
  const auto decision = jobs::decide_retry(outcome.cause, spec_.retries, history_);
  if (decision.retries_left == 0) {
    return end_job(JobEvent::kRankFault, outcome.detail + "; " + decision.why_not,
                   outcome.decisive.code);
  }
  (outcome.cause == Cause::kRankFault ? history_.rank_fault_count : history_.unavailable_count)++;
  advance(JobEvent::kRankFault, decision.retries_left, outcome.detail);
  start_attempt();
}

// `event` leads to a final state: the caller saw to that.
void Supervisor::end_job(JobEvent event, const std::string& detail, int exit_code) {
  const auto next = jobs::advance(state_, event, 0);
  YARD_CHECK(next.has_value() && jobs::is_final(next->next));
  status_.exit_code = exit_code;
  if (next->next != JobState::kSucceeded) status_.reason = detail;
  record_.note({.kind = Kind::kEnded,
                .code = exit_code,
                .detail = status_.reason,
                .state = std::string(to_string(next->next))});
  record_.write_ledger();
  // The state last: who sees a job ended finds its ledger whole.
  advance(event, 0, detail);
  status_.ended_t = record_.now_t();
  write_status();
}

void Supervisor::read_control() {
  std::array<char, 4096> buffer;
  const ssize_t got = ::read(control_.get(), buffer.data(), buffer.size());
  if (got <= 0) return;
  const std::string_view words(buffer.data(), static_cast<size_t>(got));
  // Anything else is nobody's request; a word is written whole, far below PIPE_BUF.
  if (words.find("kill") != std::string_view::npos) {
    if (state_ != JobState::kStopping) ask_stop("kill request");
    ask_stop("kill request");
  } else if (words.find("stop") != std::string_view::npos) {
    ask_stop("stop request");
  }
}

void Supervisor::ask_stop(const std::string& by) {
  record_.note({.kind = Kind::kStopAsked, .detail = by});
  const auto transition = advance(JobEvent::kStopAsked, 0, by);
  if (transition.action == jobs::Action::kKillRanks) {
    kill_at_ = options_.clock->now();
  } else if (ending_ == Ending::kNone) {
    begin_ending(Ending::kStop, std::chrono::duration_cast<milliseconds>(
                                    std::chrono::duration<double>(spec_.stop_grace_s)));
  }
  write_status();
}

void Supervisor::write_files_when_due() {
  const auto now = options_.clock->now();
  if (now - status_at_ >= kStatusPeriod) write_status();
  if (now - ledger_at_ < kLedgerPeriod) return;
  ledger_at_ = now;
  record_.write_ledger();
}

// Which attempt follows this one is known; the port that it gets is not.
void Supervisor::look_after_spares() {
  if (ending_ != Ending::kNone || !attempt_->any_running()) return;
  spares_.look(attempt_->pids(), {status_.attempt + 1, 0, options_.job_dir});
  status_.spare_count = spares_.ready_count();
}

void Supervisor::write_status() {
  if (attempt_) look_after_spares();
  status_at_ = options_.clock->now();
  status_.state = state_;
  status_.updated_t = record_.now_t();
  if (attempt_) status_.ranks = attempt_->rank_status();
  const auto progress = record_.progress();
  status_.stage = progress.stage;
  status_.global_step = progress.global_step;
  status_.global_steps = progress.global_steps;
  status_.loss = progress.loss;
  const Status written = replace_file(folder_.status(), to_json(status_).dump(2) + "\n");
  if (!written) log_warning("the status is not up to date: {}", written.error().message);
}

// Held until our process ends, also by a crash: the ranks never hold it.
Result<UniqueFd> lock_job(const JobFolder& folder) {
  YARD_ASSIGN(UniqueFd lock, open_for_append(folder.events()));
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) == 0) return lock;
  if (errno == EWOULDBLOCK)
    return Error{Code::kUnavailable, folder.dir + ": another supervisor runs this job"};
  return errno_error(folder.events(), errno);
}

}  // namespace

Result<SupervisorResult> supervise(const SupervisorOptions& options) {
  const JobFolder folder{options.job_dir};
  YARD_ASSIGN(jobs::JobSpec spec, read_spec(folder));
  YARD_ASSIGN(const UniqueFd lock, lock_job(folder));
  YARD_ASSIGN(JobRecord record, JobRecord::open(folder, spec, *options.clock));
  YARD_ASSIGN(LogFile log, LogFile::open(folder.job_log()));
  Supervisor supervisor(options, std::move(spec), std::move(record), std::move(log));
  YARD_TRY(supervisor.open());
  if (options.on_ready) options.on_ready();
  return supervisor.run();
}

}  // namespace yard::host
