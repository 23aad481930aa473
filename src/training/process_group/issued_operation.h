// IssuedOperation: operations of a Group on behalf of one call of torch, and what is done at their
// end: results copied to their tensors, futures fulfilled.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/result.h"
#include "collective/collective.h"
#include "process_group/rank_names.h"

namespace yard::process_group {

class IssuedOperation;

// Who speaks in errors, and whether one was told.
struct Speaker {
  std::string label;  // "[yard, rank 1 of 3]"
  RankNames names;
  std::atomic<bool> failed = false;
};

// What an operation consists of.
struct Parts {
  std::vector<std::unique_ptr<collective::Work>> works;
  std::vector<std::shared_ptr<IssuedOperation>> children;  // settled with it
  std::function<void()> finish;     // once, after all succeeded; owns all that the works borrow
  std::vector<at::Tensor> outputs;  // the value of its future
  std::string name;                 // of errors: "all_reduce"
  std::shared_ptr<Speaker> speaker;
};

// Thread-safe. Somebody has to settle it: whoever waits, or a Settler.
class IssuedOperation {
 public:
  explicit IssuedOperation(Parts parts) : parts_(std::move(parts)) {}

  // Whether settle() would return at once.
  bool ready();
  // Waits for the end. Errors are kept, never thrown.
  void settle();
  // Waits at most so long for somebody else to settle it.
  bool wait_settled(std::chrono::milliseconds timeout);
  bool settled() const;
  // After it was settled: null, or a c10::DistBackendError.
  std::exception_ptr error() const;
  // Until it is settled the caller has to see to that.
  c10::intrusive_ptr<c10::ivalue::Future> future();
  std::vector<at::Tensor> outputs() const { return parts_.outputs; }
  // Called once it is settled, on that thread; now, if it is.
  void at_end(std::function<void()> callback);

 private:
  Status wait_for_parts();
  std::exception_ptr run_to_end();
  void fulfil(const c10::intrusive_ptr<c10::ivalue::Future>& future);

  std::mutex settling_;  // held by the one who waits for the parts
  Parts parts_;          // outputs aside, his

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool settled_ = false;
  std::exception_ptr error_;
  std::function<void()> at_end_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

// A thread that settles operations for which nobody waits: those with futures, and those whose
// handle was dropped. It starts with the first of them.
class Settler {
 public:
  enum class Order {
    kIssued,  // they end in the order in which they were added
    kAny,     // any may be the next to end; they are polled
  };
  explicit Settler(Order order);
  ~Settler() { close(); }
  Settler(const Settler&) = delete;
  Settler& operator=(const Settler&) = delete;

  // After close() it is settled by the caller.
  void add(std::shared_ptr<IssuedOperation> operation);
  // Settles what was added, then ends the thread: the Group has to be closed by then. Callable from
  // a callback of a future.
  void close();

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable added;
    std::deque<std::shared_ptr<IssuedOperation>> operations;
    bool closed = false;
  };
  static void run_in_order(State& state);
  static void run_in_any_order(State& state);

  const Order order_;
  // The thread's too: it may outlive this object when a callback destroyed it.
  const std::shared_ptr<State> state_ = std::make_shared<State>();
  std::thread thread_;
};

}  // namespace yard::process_group
