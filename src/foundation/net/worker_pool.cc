#include "net/channel_internal.h"
#include "net/worker_pool_internal.h"

namespace yard::net_internal {

void WorkerPool::push(Job job) {
  const std::lock_guard lock(mutex_);
  if (stopped_) return;
  jobs_.push_back(std::move(job));
  if (jobs_.size() > idle_count_ && threads_.size() < thread_count_max_)
    threads_.emplace_back([this] { run(); });
  changed_.notify_one();
}

bool WorkerPool::has_slack() const {
  const std::lock_guard lock(mutex_);
  const size_t busy_count = threads_.size() - idle_count_ + jobs_.size();
  return !stopped_ && busy_count * 2 <= thread_count_max_;
}

bool WorkerPool::is_pressed() const {
  const std::lock_guard lock(mutex_);
  return stopped_ || (jobs_.size() > idle_count_ && threads_.size() == thread_count_max_);
}

void WorkerPool::stop() {
  std::vector<std::thread> threads;
  std::deque<Job> dropped;
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    threads.swap(threads_);
    dropped.swap(jobs_);
  }
  changed_.notify_all();
  for (std::thread& thread : threads) thread.join();
}

void WorkerPool::run() {
  const SigpipeBlock block;
  std::unique_lock lock(mutex_);
  for (;;) {
    ++idle_count_;
    changed_.wait(lock, [&] { return stopped_ || !jobs_.empty(); });
    --idle_count_;
    if (stopped_) return;
    Job job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    job();
    job = nullptr;
    lock.lock();
  }
}

}  // namespace yard::net_internal
