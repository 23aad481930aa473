// FailureWatch: tells when a rank of a host group died or gave up, while nobody uses that group.
//
// Each rank has a message of its neighbour's pending, in a group of its own, that comes when the
// neighbour leaves in order. A failure of whatever rank ends it with an Error on all others.
#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>

#include "base/result.h"
#include "collective/collective.h"

namespace yard::tensor {

// Thread-safe.
class FailureWatch {
 public:
  // Collective. `on_failure` is called at most once, on the watch's thread.
  static Result<std::unique_ptr<FailureWatch>> start(collective::Group& group,
                                                     std::function<void()> on_failure);
  ~FailureWatch();
  FailureWatch(const FailureWatch&) = delete;
  FailureWatch& operator=(const FailureWatch&) = delete;

  std::optional<Error> failure() const;
  // Waits for one that is on its way.
  std::optional<Error> await_failure(std::chrono::milliseconds limit) const;
  void abort(std::string_view reason);

 private:
  explicit FailureWatch(std::function<void()> on_failure) : on_failure_(std::move(on_failure)) {}
  void run();

  const std::function<void()> on_failure_;
  std::unique_ptr<collective::Group> group_;  // null: this rank is alone
  std::array<std::byte, 1> goodbye_{};
  std::unique_ptr<collective::Work> pending_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool is_leaving_ = false;
  std::optional<Error> failure_;
  std::thread thread_;
};

}  // namespace yard::tensor
