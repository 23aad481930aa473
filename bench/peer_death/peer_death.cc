// From SIGKILL of a rank to the Error of every other one: 4 ranks on 2 hosts that reduce all the
// time, one of them killed at a random instant.
//   peer_death [RUNS]
// prints a line for each run, "<victim> <ms until the first knew> <ms until the last knew>".
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstring>
#include <string>
#include <vector>

#include "base/random.h"
#include "collective/rendezvous.h"

namespace yard::collective {
namespace {

constexpr int kRanks = 4;

struct Told {
  int64_t at_ns = 0;  // 0: runs
  int names_victim = 0;
};

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void tell(int pipe, const Told& told) {
  [[maybe_unused]] const ssize_t written = ::write(pipe, &told, sizeof told);
}

void run_rank(int rank, uint16_t port, int victim, int pipe) {
  auto group = connect({.rank = rank,
                        .world_size = kRanks,
                        .master_port = port,
                        .run_id = "peer death",
                        .host_identity = rank < kRanks / 2 ? "left" : "right"},
                       StopToken());
  if (!group) return;
  std::vector<float> data(250'000, 1);
  Status status = Ok{};
  for (int step = 0; status; ++step) {
    status =
        (*group)
            ->all_reduce(std::as_writable_bytes(std::span(data)), DType::kF32, ReduceOp::kAverage)
            ->wait();
    if (status && step == 0) tell(pipe, {});
  }
  tell(pipe, {.at_ns = now_ns(),
              .names_victim = status.error().message.find(fmt::format("rank {}", victim)) !=
                              std::string::npos});
}

bool next(int pipe, Told* told) {
  pollfd polled{.fd = pipe, .events = POLLIN, .revents = 0};
  return ::poll(&polled, 1, 30'000) == 1 &&
         ::read(pipe, told, sizeof *told) == static_cast<ssize_t>(sizeof *told);
}

// Whether all that should be told was told.
bool run_once(uint64_t run) {
  const int victim = static_cast<int>(random_below(kRanks, 5, 0, run));
  const auto port = free_loopback_port();
  std::array<int, 2> pipe{};
  if (!port || ::pipe(pipe.data()) != 0) return false;
  std::vector<pid_t> pids;
  std::fflush(stdout);
  for (int rank = 0; rank < kRanks; ++rank) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::alarm(60);  // never an orphan
      run_rank(rank, *port, victim, pipe[1]);
      ::_exit(0);
    }
    pids.push_back(pid);
  }
  ::close(pipe[1]);
  bool is_good = true;
  Told told;
  for (int i = 0; i < kRanks; ++i) is_good = next(pipe[0], &told) && is_good;
  const timespec instant{0, static_cast<long>(random_below(20'000'000, 5, 1, run))};
  ::nanosleep(&instant, nullptr);
  const int64_t killed_ns = now_ns();
  ::kill(pids[static_cast<size_t>(victim)], SIGKILL);
  std::vector<double> millis;
  for (int i = 0; i + 1 < kRanks && is_good; ++i) {
    is_good = next(pipe[0], &told) && told.names_victim == 1;
    millis.push_back(static_cast<double>(told.at_ns - killed_ns) / 1e6);
  }
  ::close(pipe[0]);
  for (const pid_t pid : pids) {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  }
  if (is_good)
    fmt::print("{} {:.2f} {:.2f}\n", victim, *std::min_element(millis.begin(), millis.end()),
               *std::max_element(millis.begin(), millis.end()));
  else
    fmt::print(stderr, "run {}: a rank was not told, or not of rank {}\n", run, victim);
  return is_good;
}

}  // namespace
}  // namespace yard::collective

int main(int argc, char** argv) {
  int run_count = 100;
  if (argc == 2) std::from_chars(argv[1], argv[1] + std::strlen(argv[1]), run_count);
  int failures = 0;
  for (int run = 0; run < run_count; ++run)
    failures += yard::collective::run_once(static_cast<uint64_t>(run)) ? 0 : 1;
  return failures == 0 ? 0 : 1;
}
