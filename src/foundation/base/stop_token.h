// StopSource / StopToken: one way to ask a thread, a wait or a whole program to stop.
//
// Unlike std::stop_token it can be waited for with poll(): fd() becomes readable when stop is
// asked. request() is async-signal-safe, so that a SIGINT handler may call it.
#pragma once

#include <chrono>
#include <memory>

namespace yard {

// Thread-safe; copies share the state. A default-constructed token is never stopped.
class StopToken {
 public:
  StopToken() = default;

  bool stopped() const;
  // Waits at most `timeout`; true when stop was asked.
  bool wait_for(std::chrono::nanoseconds timeout) const;
  // Readable once stop was asked; -1 for a token without source. Owned by the state.
  int fd() const;

 private:
  friend class StopSource;
  struct State;
  explicit StopToken(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

class StopSource {
 public:
  StopSource();
  StopToken token() const { return StopToken(state_); }
  void request() const;  // idempotent, async-signal-safe

 private:
  std::shared_ptr<StopToken::State> state_;
};

// Makes SIGINT and SIGTERM request stop on the returned source; a second signal of the same kind
// ends the process at once with the default action. Call once, from main(), before threads start.
StopSource stop_on_signals();

}  // namespace yard
