#include "host/attempt.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>

#include <cerrno>

#include "base/log.h"
#include "host/job_folder.h"

namespace yard::host {
namespace {

// A rank that floods its output must not keep us from noticing a death.
constexpr size_t kPumpBytesMax = 256 * 1024;
// At its end: what a pipe holds at most by default, with room to spare.
constexpr size_t kDrainBytesMax = 4 * 1024 * 1024;

}  // namespace

Result<Attempt> Attempt::launch(const AttemptOptions& options) {
  Attempt attempt;
  for (int rank = 0; rank < options.spec->ranks; ++rank)
    YARD_TRY(attempt.launch_rank(options, rank));
  return attempt;
}

Status Attempt::launch_rank(const AttemptOptions& options, int rank) {
  const jobs::JobSpec& spec = *options.spec;
  const JobFolder folder{options.plan.job_dir};
  YARD_ASSIGN(auto log, RankLog::open(rank, folder.rank_log(rank), options.job_log));
  SubprocessOptions child;
  child.argv = spec.command;
  child.env = rank_environment(options.env, spec, options.plan, rank, options.core_count);
  child.cwd = spec.working_dir;
  child.stdout_fd = log->writer();
  child.stderr_fd = log->writer();
  child.kill_with_parent = true;
  child.cpus = rank_cores(options.cores, spec.ranks, rank);
  auto spare = options.spares != nullptr ? options.spares->start(rank, child) : std::nullopt;
  if (spare) ++spare_count_;
  auto process = spare ? Result<Subprocess>(*std::move(spare)) : Subprocess::spawn(child);
  if (!process) return std::move(process).error().while_("starting rank " + std::to_string(rank));
  log->close_writer();
  ranks_.push_back({*std::move(process), std::move(log), true, 0, {}});
  ++running_count_;
  return Ok{};
}

void Attempt::add_poll_items(std::vector<pollfd>& items) const {
  for (const Rank& rank : ranks_) {
    if (!rank.running) continue;
    items.push_back({.fd = rank.process.pidfd(), .events = POLLIN, .revents = 0});
    if (rank.log->reader() >= 0)
      items.push_back({.fd = rank.log->reader(), .events = POLLIN, .revents = 0});
  }
}

void Attempt::pump_logs() {
  for (Rank& rank : ranks_)
    if (rank.running) rank.log->pump(kPumpBytesMax);
}

std::vector<jobs::RankExit> Attempt::reap() {
  std::vector<jobs::RankExit> ended;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    Rank& rank = ranks_[i];
    if (!rank.running) continue;
    const auto exit = rank.process.wait(std::chrono::milliseconds(0));
    if (!exit) continue;  // it still runs
    rank.running = false;
    --running_count_;
    rank.exit = *exit;
    rank.log->pump(kDrainBytesMax);
    rank.log->finish();
    ended.push_back({static_cast<int>(i), exit->code, exit->signal, rank.signal_sent});
  }
  exits_.insert(exits_.end(), ended.begin(), ended.end());
  return ended;
}

void Attempt::terminate_running() {
  for (Rank& rank : ranks_) {
    if (!rank.running) continue;
    if (const auto sent = rank.process.kill(SIGTERM); !sent)
      log_warning("{}", sent.error().message);
    rank.signal_sent = SIGTERM;
  }
}

void Attempt::kill_running() {
  for (Rank& rank : ranks_) {
    if (!rank.running) continue;
    if (const auto sent = rank.process.kill_group(SIGKILL); !sent)
      log_warning("{}", sent.error().message);
    rank.signal_sent = SIGKILL;
  }
}

void Attempt::kill_rank(int rank) {
  const auto sent = ranks_[static_cast<size_t>(rank)].process.kill(SIGKILL);
  if (!sent) log_warning("{}", sent.error().message);
}

void Attempt::finish() {
  YARD_CHECK(running_count_ == 0);
  for (Rank& rank : ranks_) {
    // Its own zombie keeps the group's number from being given to anybody else.
    const auto sent = rank.process.kill_group(SIGKILL);
    if (!sent) log_warning("{}", sent.error().message);
  }
}

std::vector<RankStatus> Attempt::rank_status() const {
  std::vector<RankStatus> out;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const Rank& rank = ranks_[i];
    out.push_back({.rank = static_cast<int>(i),
                   .pid = rank.process.pid(),
                   .alive = rank.running,
                   .code = rank.exit.code,
                   .signal = rank.exit.signal});
  }
  return out;
}

std::vector<int64_t> Attempt::pids() const {
  std::vector<int64_t> out;
  for (const Rank& rank : ranks_) out.push_back(rank.process.pid());
  return out;
}

Result<int> find_free_port() {
  const UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return errno_error("socket", errno);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  if (::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    return errno_error("127.0.0.1: finding a free port", errno);
  }
  return static_cast<int>(ntohs(address.sin_port));
}

}  // namespace yard::host
