// FakeClock: time that stands still until a test moves it.
#pragma once

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <list>
#include <mutex>

#include "base/clock.h"
#include "base/result.h"

namespace yard {

// Thread-safe. It starts at 2026-01-01T00:00:00Z, monotonic 1000 s.
//   kAdvances: sleep_for() moves the time on by its duration and returns at once; for code under
//              test that runs in the test's own thread, such as retries with backoff.
//   kWaits:    sleep_for() blocks until advance(), called by another thread, has moved the time
//              past its end; wait_for_sleepers() tells that thread when somebody sleeps.
// In both a stop token ends a sleep at once, with false.
class FakeClock : public Clock {
 public:
  enum class Sleep { kAdvances, kWaits };

  explicit FakeClock(Sleep sleep = Sleep::kAdvances) : sleep_(sleep) {}

  Monotonic now() const override {
    std::lock_guard lock(mutex_);
    return Monotonic(std::chrono::duration_cast<Monotonic::duration>(kMonotonicStart + elapsed_));
  }

  Wall wall_now() const override {
    std::lock_guard lock(mutex_);
    return Wall(std::chrono::duration_cast<Wall::duration>(kWallStart + elapsed_));
  }

  bool sleep_for(std::chrono::nanoseconds duration, const StopToken& stop) override {
    if (stop.stopped()) return false;
    if (sleep_ == Sleep::kWaits) return wait_until_advanced(duration, stop);
    advance(duration);
    return true;
  }

  void advance(std::chrono::nanoseconds duration) {
    std::lock_guard lock(mutex_);
    elapsed_ += std::max(duration, std::chrono::nanoseconds(0));
    for (const auto& sleeper : sleepers_)
      if (sleeper.end <= elapsed_) sleeper.due.request();
  }

  // Blocks until `count` threads are inside sleep_for() with their end still to come.
  void wait_for_sleepers(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] {
      return static_cast<size_t>(std::ranges::count_if(
                 sleepers_, [&](const Sleeper& s) { return s.end > elapsed_; })) >= count;
    });
  }

  // The time since the start: the sum of all sleeps and advances.
  std::chrono::nanoseconds elapsed() const {
    std::lock_guard lock(mutex_);
    return elapsed_;
  }

 private:
  struct Sleeper {
    std::chrono::nanoseconds end;
    StopSource due;
  };

  static constexpr std::chrono::seconds kMonotonicStart{1000};
  static constexpr std::chrono::seconds kWallStart{1'767'225'600};

  bool wait_until_advanced(std::chrono::nanoseconds duration, const StopToken& stop) {
    std::unique_lock lock(mutex_);
    if (duration.count() <= 0) return true;
    const auto sleeper = sleepers_.insert(sleepers_.end(), Sleeper{elapsed_ + duration, {}});
    changed_.notify_all();
    lock.unlock();
    const bool slept = wait_for_either(sleeper->due.token(), stop);
    lock.lock();
    sleepers_.erase(sleeper);
    return slept;
  }

  // poll() passes over the descriptor -1 of a token without source.
  static bool wait_for_either(const StopToken& due, const StopToken& stop) {
    pollfd items[2] = {{due.fd(), POLLIN, 0}, {stop.fd(), POLLIN, 0}};
    while (::poll(items, 2, -1) < 0) YARD_CHECK(errno == EINTR);
    return !stop.stopped();
  }

  const Sleep sleep_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::list<Sleeper> sleepers_;
  std::chrono::nanoseconds elapsed_{0};
};

}  // namespace yard
