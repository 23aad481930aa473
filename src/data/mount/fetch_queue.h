// FetchQueue: the threads that talk to the store. What a reader waits for goes first; what is
// fetched ahead runs as far as it makes the whole faster.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "storage/transfer_pool.h"

namespace yard::mount {

// Thread-safe. The destructor runs what is queued to its end.
class FetchQueue {
 public:
  enum class Urgency { kAwaited, kAhead };
  // Returns the bytes it moved; kUnavailable and kExhausted: the store is too busy.
  using Task = std::function<Result<uint64_t>()>;

  explicit FetchQueue(int thread_count_max = 256, Clock& clock = Clock::real());
  ~FetchQueue();

  void push(Urgency urgency, Task task);

 private:
  struct Taken {
    Task task;
    Urgency urgency;
  };
  bool may_run() const;
  void run();

  const int thread_count_max_;
  Clock& clock_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> awaited_;
  std::deque<Task> ahead_;
  storage::ConcurrencyRule rule_;  // of what is fetched ahead
  int ahead_running_ = 0;
  int idle_count_ = 0;
  bool closed_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace yard::mount
