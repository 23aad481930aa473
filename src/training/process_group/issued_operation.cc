#include "process_group/issued_operation.h"

#include <ATen/core/jit_type.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"

namespace yard::process_group {
namespace {

using Future = c10::ivalue::Future;

// Short enough that nobody notices, long enough to cost nothing: both of a poll among messages.
constexpr std::chrono::microseconds kPollMin{50};
constexpr std::chrono::microseconds kPollMax{1000};

std::exception_ptr exception_of(const std::string& message) {
  // Without the stack that the other constructors record: it would be that of a waiting thread.
  return std::make_exception_ptr(c10::DistBackendError(message, nullptr));
}

}  // namespace

bool IssuedOperation::settled() const {
  std::lock_guard lock(mutex_);
  return settled_;
}

std::exception_ptr IssuedOperation::error() const {
  std::lock_guard lock(mutex_);
  return error_;
}

void IssuedOperation::at_end(std::function<void()> callback) {
  {
    std::lock_guard lock(mutex_);
    if (!settled_) {
      at_end_ = std::move(callback);
      return;
    }
  }
  callback();
}

bool IssuedOperation::ready() {
  if (settled()) return true;
  const std::unique_lock lock(settling_, std::try_to_lock);
  if (!lock) return false;
  return std::ranges::all_of(parts_.works, [](const auto& work) { return work->done(); }) &&
         std::ranges::all_of(parts_.children, [](const auto& child) { return child->ready(); });
}

Status IssuedOperation::wait_for_parts() {
  Status status = Ok{};
  for (const auto& work : parts_.works)
    if (auto one = work->wait(); !one && status) status = std::move(one);
  return status;
}

std::exception_ptr IssuedOperation::run_to_end() {
  try {
    if (Status status = wait_for_parts(); !status) {
      parts_.speaker->failed = true;
      return exception_of(fmt::format("{} {}: {}", parts_.speaker->label, parts_.name,
                                      parts_.speaker->names.explain(status.error().message)));
    }
    for (const auto& child : parts_.children) {
      child->settle();
      if (child->error()) return child->error();
    }
    if (parts_.finish) parts_.finish();
    return nullptr;
  } catch (const std::exception&) {
    return std::current_exception();
  }
}

void IssuedOperation::settle() {
  if (settled()) return;
  std::unique_lock settling(settling_);
  if (settled()) return;
  std::exception_ptr error = run_to_end();
  // In this order: the works wait for themselves, and borrow what the function owns.
  parts_.works.clear();
  parts_.children.clear();
  parts_.finish = nullptr;
  c10::intrusive_ptr<Future> future;
  std::function<void()> at_end;
  {
    std::lock_guard lock(mutex_);
    settled_ = true;
    error_ = std::move(error);
    future = future_;
    at_end = std::exchange(at_end_, nullptr);
    changed_.notify_all();
  }
  settling.unlock();
  if (at_end) at_end();
  if (future) fulfil(future);
}

bool IssuedOperation::wait_settled(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, timeout, [&] { return settled_; });
}

c10::intrusive_ptr<Future> IssuedOperation::future() {
  std::unique_lock lock(mutex_);
  if (future_) return future_;
  future_ = c10::make_intrusive<Future>(c10::ListType::create(c10::TensorType::get()));
  const auto future = future_;
  const bool is_late = settled_;
  lock.unlock();
  if (is_late) fulfil(future);
  return future;
}

// Runs the future's callbacks, which may issue operations and wait for them, for this one too.
void IssuedOperation::fulfil(const c10::intrusive_ptr<Future>& future) {
  try {
    if (auto error = this->error())
      future->setError(std::move(error));
    else
      future->markCompleted(c10::IValue(parts_.outputs));
  } catch (const std::exception& e) {
    log_error("a callback of {} failed: {}", parts_.name, e.what());
  }
}

Settler::Settler(Order order) : order_(order) {}

void Settler::add(std::shared_ptr<IssuedOperation> operation) {
  std::unique_lock lock(state_->mutex);
  if (state_->closed) {
    lock.unlock();
    operation->settle();
    return;
  }
  state_->operations.push_back(std::move(operation));
  if (!thread_.joinable()) {
    thread_ = std::thread([state = state_, order = order_] {
      order == Order::kIssued ? run_in_order(*state) : run_in_any_order(*state);
    });
  }
  state_->added.notify_one();
}

void Settler::close() {
  std::thread thread;
  {
    std::lock_guard lock(state_->mutex);
    state_->closed = true;
    state_->added.notify_one();
    thread = std::move(thread_);
  }
  if (!thread.joinable()) return;
  if (thread.get_id() == std::this_thread::get_id())
    thread.detach();
  else
    thread.join();
}

void Settler::run_in_order(State& state) {
  std::unique_lock lock(state.mutex);
  while (true) {
    state.added.wait(lock, [&] { return state.closed || !state.operations.empty(); });
    if (state.operations.empty()) return;
    auto operation = std::move(state.operations.front());
    state.operations.pop_front();
    lock.unlock();
    operation->settle();
    operation = nullptr;
    lock.lock();
  }
}

void Settler::run_in_any_order(State& state) {
  auto pause = kPollMin;
  std::unique_lock lock(state.mutex);
  while (true) {
    state.added.wait(lock, [&] { return state.closed || !state.operations.empty(); });
    if (state.operations.empty()) return;
    auto ready = std::ranges::find_if(state.operations, [](auto& one) { return one->ready(); });
    if (ready == state.operations.end()) {
      state.added.wait_for(lock, pause);
      pause = std::min(pause * 2, kPollMax);
      continue;
    }
    pause = kPollMin;
    auto operation = std::move(*ready);
    state.operations.erase(ready);
    lock.unlock();
    operation->settle();
    operation = nullptr;
    lock.lock();
  }
}

}  // namespace yard::process_group
