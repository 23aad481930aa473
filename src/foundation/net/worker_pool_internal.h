// WorkerPool: threads for blocking jobs, started as they are needed.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace yard::net_internal {

// Thread-safe. Jobs run in the order they came; they must not throw.
class WorkerPool {
 public:
  using Job = std::function<void()>;

  explicit WorkerPool(size_t thread_count_max) : thread_count_max_(thread_count_max) {}
  ~WorkerPool() { stop(); }

  // Starts a thread when none is free. After stop() the job is dropped.
  void push(Job job);
  // Whether a job may wait for something that can take a while: half of the threads are left.
  bool has_slack() const;
  // Whether jobs wait for a thread.
  bool is_pressed() const;
  // Drops the jobs that have not begun, waits for the others.
  void stop();

 private:
  void run();

  const size_t thread_count_max_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  std::vector<std::thread> threads_;
  size_t idle_count_ = 0;
  bool stopped_ = false;
};

}  // namespace yard::net_internal
