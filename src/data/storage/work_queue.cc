#include "storage/work_queue.h"

#include <algorithm>

namespace yard::storage {

WorkQueue::~WorkQueue() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void WorkQueue::push(std::function<void()> task) {
  const std::lock_guard lock(mutex_);
  tasks_.push_back(std::move(task));
  const auto thread_count = static_cast<int>(threads_.size());
  if (static_cast<int>(tasks_.size()) > idle_count_ && thread_count < thread_count_max_)
    threads_.emplace_back([this] { run(); });
  changed_.notify_one();
}

void WorkQueue::set_thread_count_max(int thread_count_max) {
  const std::lock_guard lock(mutex_);
  // Called after every task, almost always with what is set already: nobody need wake up.
  if (thread_count_max_ == std::max(thread_count_max, 1)) return;
  thread_count_max_ = std::max(thread_count_max, 1);
  const int wanted = static_cast<int>(tasks_.size()) + running_count_;
  while (static_cast<int>(threads_.size()) < std::min(wanted, thread_count_max_))
    threads_.emplace_back([this] { run(); });
  changed_.notify_all();
}

void WorkQueue::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    ++idle_count_;
    changed_.wait(lock, [&] {
      return (!tasks_.empty() && running_count_ < thread_count_max_) || (closed_ && tasks_.empty());
    });
    --idle_count_;
    if (tasks_.empty()) return;
    std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    if (closed_ && tasks_.empty()) changed_.notify_all();
    ++running_count_;
    lock.unlock();
    task();
    task = nullptr;  // what it captured may use this queue
    lock.lock();
    --running_count_;
    if (!tasks_.empty()) changed_.notify_one();
  }
}

bool ByteBudget::try_take(uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (left_bytes_ < bytes) return false;
  left_bytes_ -= bytes;
  return true;
}

void ByteBudget::take(uint64_t bytes) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return left_bytes_ >= bytes; });
  left_bytes_ -= bytes;
}

void ByteBudget::give(uint64_t bytes) {
  {
    const std::lock_guard lock(mutex_);
    left_bytes_ += bytes;
  }
  changed_.notify_all();
}

}  // namespace yard::storage
