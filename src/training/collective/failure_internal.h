// Failure: the one Error that ended a group, told to everybody who waits.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
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

  // The rank that this one waits for right now, -1 for none: who holds up whom.
  void set_waited_rank(int rank) {
    waited_rank_.store(rank, std::memory_order_relaxed);
    if (shown_waited_rank_ != nullptr) shown_waited_rank_->store(rank, std::memory_order_relaxed);
    if (rank >= 0) last_waited_rank_.store(rank, std::memory_order_relaxed);
  }
  // The last that was waited for since this was called before, -1 for none.
  int take_last_waited_rank() { return last_waited_rank_.exchange(-1, std::memory_order_relaxed); }
  int waited_rank() const { return waited_rank_.load(std::memory_order_relaxed); }
  // Where others look for it; before there are operations. It must outlive them.
  void show_waited_rank_in(std::atomic<int32_t>& place) { shown_waited_rank_ = &place; }
  // The rank at the end of the chain: the one we wait for, or whom that one waits for, ...
  void set_culprit_finder(std::function<int(int)> finder) { culprit_finder_ = std::move(finder); }
  // By rank, may be empty; set before there are operations.
  void set_host_names(std::vector<std::string> names) { host_names_ = std::move(names); }
  // "rank 3 (on node7)", or "rank 3" where the host has no name.
  std::string name_of(int rank) const;

  int culprit_of(int waited) const { return culprit_finder_ ? culprit_finder_(waited) : waited; }

 private:
  mutable std::mutex mutex_;
  std::vector<std::function<void(const Error&)>> listeners_;
  std::optional<Error> error_;
  std::atomic<bool> failed_ = false;
  std::atomic<int> waited_rank_ = -1;
  std::atomic<int> last_waited_rank_ = -1;
  std::atomic<int32_t>* shown_waited_rank_ = nullptr;
  std::function<int(int)> culprit_finder_;  // set before there are operations
  std::vector<std::string> host_names_;     // likewise
  UniqueFd event_;
};

}  // namespace yard::collective
