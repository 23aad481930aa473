// RequestDeadline: until when the requests that a thread sends to a store are worth repeating.
//
// Whoever waits for a store that is away (store_wait.h) has a budget of time. What a store does by
// itself to get an answer counts in it: repeating a request, and waiting for a server that is
// silent.
//
//   const RequestDeadline deadline(since + std::chrono::seconds(30));
//   YARD_TRY(store.get_range(...));
#pragma once

#include "base/clock.h"

namespace yard::storage {

// Holds for the thread that made it, while it lives; of several the earliest. A transfer that moves
// is not broken off, and a request has kRequestTimeMin in any case.
class RequestDeadline {
 public:
  static constexpr std::chrono::seconds kRequestTimeMin{1};

  explicit RequestDeadline(Clock::Monotonic end);
  RequestDeadline(const RequestDeadline&) = delete;
  RequestDeadline& operator=(const RequestDeadline&) = delete;
  ~RequestDeadline();

  // Of this thread; Monotonic::max() where there is none.
  static Clock::Monotonic current();

 private:
  const Clock::Monotonic before_;
};

}  // namespace yard::storage
