#include "base/stop_token.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <ctime>
#include <thread>

#include "base/file.h"
#include "base/result.h"

namespace yard {

struct StopToken::State {
  std::atomic<bool> stopped = false;
  UniqueFd event{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
};
// A signal handler may touch only lock-free atomics.
static_assert(std::atomic<bool>::is_always_lock_free);

namespace {

using SteadyClock = std::chrono::steady_clock;

// Longer waits would overflow the clock's arithmetic, and none is meant to end.
constexpr std::chrono::nanoseconds kWaitMax = std::chrono::hours(24 * 365);

timespec to_timespec(std::chrono::nanoseconds duration) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(duration);
  return {.tv_sec = seconds.count(), .tv_nsec = (duration - seconds).count()};
}

// True when `fd` became readable before the timeout; restarts after signals.
bool poll_readable(int fd, std::chrono::nanoseconds timeout) {
  const auto deadline = SteadyClock::now() + timeout;
  while (true) {
    const auto left = std::max(std::chrono::nanoseconds(0),
                               std::chrono::nanoseconds(deadline - SteadyClock::now()));
    pollfd item{.fd = fd, .events = POLLIN, .revents = 0};
    const timespec wait = to_timespec(left);
    const int ready = ::ppoll(&item, 1, &wait, nullptr);
    if (ready > 0) return true;
    if (ready == 0) return false;
    YARD_CHECK(errno == EINTR);
  }
}

// The handler reads it, so it is set before the handler is installed and never freed.
const StopSource* signal_source = nullptr;

void on_signal(int) {
  signal_source->request();
}

}  // namespace

bool StopToken::stopped() const {
  return state_ != nullptr && state_->stopped.load(std::memory_order_acquire);
}

bool StopToken::wait_for(std::chrono::nanoseconds timeout) const {
  if (stopped()) return true;
  timeout = std::min(timeout, kWaitMax);
  if (timeout.count() <= 0) return false;
  if (state_ == nullptr) {
    std::this_thread::sleep_for(timeout);
    return false;
  }
  return poll_readable(state_->event.get(), timeout);
}

int StopToken::fd() const {
  return state_ == nullptr ? -1 : state_->event.get();
}

StopSource::StopSource() : state_(std::make_shared<StopToken::State>()) {
  YARD_CHECK(state_->event.valid());  // out of descriptors: nothing could be stopped in order
}

void StopSource::request() const {
  const int errno_of_the_interrupted = errno;
  state_->stopped.store(true, std::memory_order_release);
  // Fails only when the counter is full, and then the descriptor is readable already.
  ::eventfd_write(state_->event.get(), 1);
  errno = errno_of_the_interrupted;
}

StopSource stop_on_signals() {
  YARD_CHECK(signal_source == nullptr);
  signal_source = new StopSource;
  struct sigaction action = {};
  action.sa_handler = on_signal;
  // RESETHAND gives the second signal its default action; RESTART spares every system call that
  // does not wait on fd() an EINTR.
  action.sa_flags = SA_RESETHAND | SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (const int signal : {SIGINT, SIGTERM}) YARD_CHECK(::sigaction(signal, &action, nullptr) == 0);
  return *signal_source;
}

}  // namespace yard
