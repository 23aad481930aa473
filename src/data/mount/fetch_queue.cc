#include "mount/fetch_queue.h"

namespace yard::mount {
namespace {

constexpr int kAheadFirst = 32;
constexpr int kAheadMax = 128;

}  // namespace

FetchQueue::FetchQueue(int thread_count_max, Clock& clock)
    : thread_count_max_(thread_count_max), clock_(clock), rule_(kAheadFirst, kAheadMax) {
  YARD_CHECK(thread_count_max > 0);
}

FetchQueue::~FetchQueue() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void FetchQueue::push(Urgency urgency, Task task) {
  const std::lock_guard lock(mutex_);
  (urgency == Urgency::kAwaited ? awaited_ : ahead_).push_back(std::move(task));
  const bool needs_thread =
      awaited_.size() + (may_run() ? ahead_.size() : 0) > static_cast<size_t>(idle_count_);
  if (needs_thread && static_cast<int>(threads_.size()) < thread_count_max_)
    threads_.emplace_back([this] { run(); });
  changed_.notify_one();
}

// One thread in four is left to those who wait.
bool FetchQueue::may_run() const {
  if (!awaited_.empty()) return true;
  const int limit = std::min(rule_.limit(), std::max(1, thread_count_max_ * 3 / 4));
  return !ahead_.empty() && (ahead_running_ < limit || closed_);
}

void FetchQueue::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    ++idle_count_;
    changed_.wait(lock,
                  [&] { return may_run() || (closed_ && awaited_.empty() && ahead_.empty()); });
    --idle_count_;
    if (!may_run()) return;
    const Urgency urgency = awaited_.empty() ? Urgency::kAhead : Urgency::kAwaited;
    auto& queue = urgency == Urgency::kAwaited ? awaited_ : ahead_;
    Task task = std::move(queue.front());
    queue.pop_front();
    if (closed_) changed_.notify_all();
    if (urgency == Urgency::kAhead) {
      ++ahead_running_;
      rule_.on_begin(clock_.now());
    }
    lock.unlock();
    const auto moved = task();
    task = nullptr;  // what it captured may use this queue
    lock.lock();
    if (urgency == Urgency::kAhead) {
      --ahead_running_;
      if (moved) rule_.on_end(*moved, clock_.now());
    }
    if (!moved &&
        (moved.error().code == Code::kUnavailable || moved.error().code == Code::kExhausted))
      rule_.on_slow_down();
    if (may_run()) changed_.notify_one();
  }
}

}  // namespace yard::mount
