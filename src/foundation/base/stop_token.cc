#include "base/stop_token.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <thread>

#include "base/result.h"

namespace yard {

struct StopToken::State {
  State() : fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) { YARD_CHECK(fd >= 0); }
  ~State() { close(fd); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  // Only atomics and write(2): a signal handler calls this.
  void request() {
    asked.store(true, std::memory_order_release);
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(fd, &one, sizeof one);
  }

  std::atomic<bool> asked = false;
  const int fd;
};

bool StopToken::stopped() const {
  return state_ && state_->asked.load(std::memory_order_acquire);
}

int StopToken::fd() const {
  return state_ ? state_->fd : -1;
}

bool StopToken::wait_for(std::chrono::nanoseconds timeout) const {
  if (!state_) {
    std::this_thread::sleep_for(timeout);
    return false;
  }
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (!stopped()) {
    const auto left = deadline - std::chrono::steady_clock::now();
    if (left.count() <= 0) return false;
    const auto seconds = std::chrono::floor<std::chrono::seconds>(left);
    const timespec wait = {.tv_sec = seconds.count(), .tv_nsec = (left - seconds).count()};
    pollfd event = {.fd = state_->fd, .events = POLLIN, .revents = 0};
    if (ppoll(&event, 1, &wait, nullptr) < 0) YARD_CHECK(errno == EINTR);
  }
  return true;
}

StopSource::StopSource() : state_(std::make_shared<StopToken::State>()) {}

void StopSource::request() const {
  state_->request();
}

namespace {

// The handler's way to the source made by stop_on_signals(); never freed, as signals never end.
const StopSource* signal_source = nullptr;

void on_signal(int signal) {
  const int saved_errno = errno;
  signal_source->request();
  std::signal(signal, SIG_DFL);  // the second one ends the process
  errno = saved_errno;
}

}  // namespace

StopSource stop_on_signals() {
  YARD_CHECK(signal_source == nullptr);
  signal_source = new StopSource();
  struct sigaction action = {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  YARD_CHECK(sigaction(SIGINT, &action, nullptr) == 0);
  YARD_CHECK(sigaction(SIGTERM, &action, nullptr) == 0);
  return *signal_source;
}

}  // namespace yard
