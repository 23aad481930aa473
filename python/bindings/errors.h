// Errors and waits at the border to Python. All of it is called with the GIL held.
#pragma once

#include <nanobind/nanobind.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>

#include "base/result.h"
#include "base/stop_token.h"

namespace yard::python {

namespace nb = nanobind;

// How long a wait goes on until Python's signal handlers get their turn.
inline constexpr auto kSignalInterval = std::chrono::milliseconds(20);

// Throws the exception of trainyard.errors that belongs to the code.
[[noreturn]] void raise(const Error& error);

template <typename T>
T value_or_raise(Result<T> result) {
  if (!result) raise(result.error());
  return *std::move(result);
}

// Text of files and messages need not be UTF-8. `errors` as of Python's bytes.decode().
nb::str to_str(std::string_view text, const char* errors = "replace");

// Runs Python's signal handlers; throws what they raise: KeyboardInterrupt, for one.
void check_signals();

// Runs `work` on a thread of its own, so that Ctrl-C is answered whatever it waits for: it is then
// asked to stop and left to itself; `work` must own all that it uses.
template <typename T>
T run_interruptibly(std::function<Result<T>()> work, const StopSource& stop) {
  struct Shared {
    std::mutex mutex;
    std::condition_variable changed;
    std::optional<Result<T>> result;
  };
  const auto shared = std::make_shared<Shared>();
  std::thread([shared, work = std::move(work)]() mutable {
    auto result = [&]() -> Result<T> {
      try {
        return work();
      } catch (const std::exception& e) {
        return Error{Code::kInternal, e.what()};
      }
    }();
    work = nullptr;
    const std::lock_guard lock(shared->mutex);
    shared->result.emplace(std::move(result));
    shared->changed.notify_all();
  }).detach();
  const auto is_done = [&] { return shared->result.has_value(); };
  while (true) {
    {
      const nb::gil_scoped_release release;
      std::unique_lock lock(shared->mutex);
      if (shared->changed.wait_for(lock, kSignalInterval, is_done)) break;
    }
    if (PyErr_CheckSignals() == 0) continue;
    stop.request();
    throw nb::python_error();
  }
  return value_or_raise(*std::move(shared->result));
}

}  // namespace yard::python
