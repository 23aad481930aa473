#include "collective/testing/rank_processes.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <string_view>

namespace yard::collective {
namespace {

// No process outlives a test that was ended.
constexpr unsigned kOrphanSeconds = 240;
constexpr int kSilenceMsMax = 200'000;

void tell(int pipe, const Told& told) {
  [[maybe_unused]] const ssize_t written = ::write(pipe, &told, sizeof told);
}

// Runs in a child.
void run_until_error(const RendezvousOptions& options, const RankProcesses::Round& round,
                     int pipe) {
  Told told;
  told.rank = options.rank;
  auto group = connect(options, StopToken());
  Status status = group ? Status(Ok{}) : Status(std::move(group).error());
  while (status) {
    status = round(**group);
    if (status && ++told.rounds == 1) tell(pipe, told);
  }
  if (group && (*group)->barrier()->wait())
    status = Error{Code::kInternal, "a dead group worked again"};
  told.code = static_cast<int32_t>(status.error().code);
  std::strncpy(told.message, status.error().message.c_str(), sizeof told.message - 1);
  tell(pipe, told);
}

}  // namespace

RankProcesses::RankProcesses(const std::vector<RendezvousOptions>& options, const Round& round) {
  std::fflush(nullptr);  // else a child writes our lines again
  std::array<int, 2> fds{};
  EXPECT_EQ(::pipe(fds.data()), 0);
  read_end_.reset(fds[0]);
  for (const RendezvousOptions& each : options) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::alarm(kOrphanSeconds);
      ::signal(SIGUSR1, [](int) { ::_exit(0); });
      run_until_error(each, round, fds[1]);
      ::_exit(0);
    }
    pids_.push_back(pid);
  }
  ::close(fds[1]);
}

RankProcesses::~RankProcesses() {
  for (const pid_t pid : pids_) {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  }
}

void RankProcesses::signal(int rank, int number) {
  ::kill(pids_[static_cast<size_t>(rank)], number);
}

std::string RankProcesses::maps_of(int rank) const {
  auto maps = read_file(fmt::format("/proc/{}/maps", pids_[static_cast<size_t>(rank)]));
  return maps ? *maps : maps.error().message;
}

bool RankProcesses::all_run() {
  bool all = true;
  for (size_t i = 0; i < pids_.size() && all; ++i) all = next().code == -1;
  return all;
}

Told RankProcesses::next() {
  Told told;
  pollfd polled{.fd = read_end_.get(), .events = POLLIN, .revents = 0};
  if (::poll(&polled, 1, kSilenceMsMax) != 1 ||
      ::read(read_end_.get(), &told, sizeof told) != static_cast<ssize_t>(sizeof told))
    ADD_FAILURE() << "a rank says nothing";
  return told;
}

std::string complaint_of_stopped(const Hosts& hosts, int victim, std::chrono::milliseconds timeout,
                                 const RankProcesses::Round& round) {
  auto options = options_for(hosts);
  for (auto& each : options) each.operation_timeout = timeout;
  RankProcesses processes(options, round);
  if (!processes.all_run()) return "a rank that lives was given up";
  processes.signal(victim, SIGSTOP);
  const auto wanted = static_cast<int32_t>(Code::kDeadlineExceeded);
  std::string complaints;
  for (size_t i = 0; i + 1 < hosts.size(); ++i) {
    const Told told = processes.next();
    if (told.code == wanted &&
        std::string_view(told.message).find(fmt::format("for rank {}", victim)) !=
            std::string::npos)
      continue;
    complaints += fmt::format("rank {}, {} stopped: {}\n", told.rank, victim, told.message);
  }
  return complaints;
}

}  // namespace yard::collective
