// Failure: the one Error that ended a group, told to everybody who waits.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

#include "base/file.h"
#include "base/result.h"

namespace yard::collective {

// Thread-safe. The first report wins; later ones are dropped. Listeners are called once, before
// failed() turns true: whoever learns of the failure may end the process at once, and the peers
// must have been told by then. A listener must not call back.
class Failure {
 public:
  Failure();

  void report(Error error);
  void add_listener(std::function<void(const Error&)> listener);
  void remove_listeners();

  bool failed() const { return failed_.load(std::memory_order_acquire); }
  // Ok while nothing has failed.
  Status status() const;
  // Readable once failed; owned by this object.
  int fd() const { return event_.get(); }
  // Waits at most `grace` for another's report, then reports `error`; returns the Error that won.
  // For a symptom (a connection that closed) whose cause is probably on its way.
  Error report_after(std::chrono::milliseconds grace, Error error);

 private:
  mutable std::mutex mutex_;
  std::vector<std::function<void(const Error&)>> listeners_;
  std::optional<Error> error_;
  std::atomic<bool> failed_ = false;
  UniqueFd event_;
};

}  // namespace yard::collective
