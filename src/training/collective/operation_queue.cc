#include <exception>

#include "collective/group_internal.h"

namespace yard::collective {
namespace {

constexpr size_t kPendingMax = 4096;
constexpr size_t kBriefBytesMax = size_t{64} << 10;
constexpr std::chrono::milliseconds kLook{1};
constexpr std::chrono::milliseconds kOften{20};

void cancel(Operation& operation) {
  operation.status = Error{Code::kCancelled, "the group was closed"};
  operation.done.store(true, std::memory_order_release);
}

}  // namespace

OperationQueue::OperationQueue(Run run) : run_(std::move(run)) {
  thread_ = std::thread([this] { run_thread(); });
}

bool OperationQueue::idle() const {
  std::lock_guard lock(mutex_);
  return !running_ && pending_.empty();
}

void OperationQueue::close() {
  std::unique_lock lock(mutex_);
  if (closed_) return;
  closed_ = true;
  for (const auto& operation : pending_) cancel(*operation);
  pending_.clear();
  issued_.notify_all();
  finished_.notify_all();
  finished_.wait(lock, [&] { return !running_; });
  lock.unlock();
  thread_.join();
}

void OperationQueue::push(std::shared_ptr<Operation> operation) {
  std::unique_lock lock(mutex_);
  finished_.wait(lock, [&] { return closed_ || pending_.size() < kPendingMax; });
  if (closed_) return cancel(*operation);
  const bool is_small = operation->in.size() + operation->out.size() <= kBriefBytesMax;
  pending_.push_back(std::move(operation));
  last_push_ = std::chrono::steady_clock::now();
  if (asleep_ || !is_small) issued_.notify_one();
}

Status OperationQueue::wait(Operation& operation) {
  if (operation.done.load(std::memory_order_acquire)) return operation.status;
  const auto begin = std::chrono::steady_clock::now();
  std::unique_lock lock(mutex_);
  while (!operation.done.load(std::memory_order_acquire)) {
    if (!running_ && !pending_.empty())
      run_front(lock);
    else
      finished_.wait(lock);
  }
  const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - begin;
  wait_seconds_.fetch_add(waited.count(), std::memory_order_relaxed);
  return operation.status;
}

void OperationQueue::run_front(std::unique_lock<std::mutex>& lock) {
  running_ = true;
  const std::shared_ptr<Operation> operation = std::move(pending_.front());
  pending_.pop_front();
  lock.unlock();
  Status status = Ok{};
  try {
    status = run_(*operation);
  } catch (const std::exception& e) {
    status = Error{Code::kInternal, std::string("running an operation: ") + e.what()};
  }
  lock.lock();
  operation->status = std::move(status);
  operation->done.store(true, std::memory_order_release);
  running_ = false;
  finished_.notify_all();
  if (!pending_.empty()) issued_.notify_one();
}

void OperationQueue::run_thread() {
  std::unique_lock lock(mutex_);
  while (!closed_) {
    if (!running_ && !pending_.empty())
      run_front(lock);
    else
      wait_for_more(lock);
  }
}

void OperationQueue::wait_for_more(std::unique_lock<std::mutex>& lock) {
  if (std::chrono::steady_clock::now() < last_push_ + kOften) {
    issued_.wait_for(lock, kLook);
    return;
  }
  asleep_ = true;
  issued_.wait(lock);
  asleep_ = false;
}

}  // namespace yard::collective
