// WorkQueue: blocking tasks on a few threads that start when they are needed. ByteBudget: memory
// that several users share.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace yard::storage {

// Thread-safe. Tasks start in the order they came. The destructor runs what is queued to its end.
class WorkQueue {
 public:
  explicit WorkQueue(int thread_count_max) : thread_count_max_(thread_count_max) {}
  ~WorkQueue();

  void push(std::function<void()> task);
  // More or fewer tasks at once from now on; 1 at least.
  void set_thread_count_max(int thread_count_max);

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  int thread_count_max_;
  int running_count_ = 0;  // tasks being run
  int idle_count_ = 0;     // threads that wait
  bool closed_ = false;
  std::vector<std::thread> threads_;
};

// Thread-safe.
class ByteBudget {
 public:
  explicit ByteBudget(uint64_t bytes) : left_bytes_(bytes) {}
  bool try_take(uint64_t bytes);
  // Blocks. Contract: no more than the whole budget.
  void take(uint64_t bytes);
  void give(uint64_t bytes);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t left_bytes_;
};

}  // namespace yard::storage
