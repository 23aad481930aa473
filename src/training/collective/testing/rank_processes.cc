#include "collective/testing/rank_processes.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>

namespace yard::collective {
namespace {

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
  told.at_ns = now_ns();
  if (group && (*group)->barrier()->wait())
    status = Error{Code::kInternal, "a dead group worked again"};
  told.code = static_cast<int32_t>(status.error().code);
  std::strncpy(told.message, status.error().message.c_str(), sizeof told.message - 1);
  tell(pipe, told);
}

}  // namespace

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

RankProcesses::RankProcesses(const std::vector<RendezvousOptions>& options, const Round& round) {
  std::fflush(nullptr);  // else a child writes our lines again
  std::array<int, 2> fds{};
  EXPECT_EQ(::pipe(fds.data()), 0);
  read_end_.reset(fds[0]);
  for (const RendezvousOptions& each : options) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::alarm(60);  // never an orphan
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

void RankProcesses::all_run() {
  for (size_t i = 0; i < pids_.size(); ++i) EXPECT_EQ(next().code, -1);
}

Told RankProcesses::next() {
  Told told;
  pollfd polled{.fd = read_end_.get(), .events = POLLIN, .revents = 0};
  if (::poll(&polled, 1, 50'000) != 1 ||
      ::read(read_end_.get(), &told, sizeof told) != static_cast<ssize_t>(sizeof told))
    ADD_FAILURE() << "a rank says nothing";
  return told;
}

}  // namespace yard::collective
