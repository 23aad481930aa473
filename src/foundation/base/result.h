// How this code base reports failure.
//
//   1. The world failed (network, disk, bad input, timeout): return Error in a Result.
//   2. The caller broke a contract: YARD_CHECK aborts, in release builds too.
//   3. A library threw: caught once, at the seam of that library, and turned into Error there.
//
// Names follow std::expected, so that Result can become an alias of it with C++23.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace yard {

// What the *caller* can do about it; the message says what happened.
enum class Code {
  kNotFound,          // asking again gives the same answer
  kInvalidArgument,   // fix the request or the config
  kCorrupt,           // bytes are there but wrong: do not retry, do not hide
  kUnavailable,       // retry with backoff may help
  kDeadlineExceeded,  // the peer or the store was too slow
  kCancelled,         // somebody asked us to stop
  kExhausted,         // a limit was hit: memory, disk, quota
  kInternal,          // our bug, or a library's
};

std::string_view to_string(Code code);

struct Error {
  Code code;
  std::string message;  // lower case, no full stop, names the object: "s3://b/k: 503"

  // Prepends what we were doing: error.while_("reading shard 12"). Once per module boundary.
  Error while_(std::string_view doing) && {
    message = std::string(doing) + ": " + message;
    return std::move(*this);
  }
};

// The Error of a failed system call: code by errno (ENOENT not found, ENOSPC exhausted, ...).
// `what` names the object: errno_error("/data/x.tar", errno).
Error errno_error(std::string_view what, int errno_value);

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool has_value() const { return state_.index() == 0; }
  explicit operator bool() const { return has_value(); }
  // Calling these on the wrong alternative is a contract violation.
  T& operator*() & { return value(); }
  const T& operator*() const& { return const_cast<Result*>(this)->value(); }
  T&& operator*() && { return std::move(value()); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &const_cast<Result*>(this)->value(); }
  const Error& error() const& { return const_cast<Result*>(this)->failure(); }
  Error&& error() && { return std::move(failure()); }

 private:
  T& value() {
    if (auto* v = std::get_if<0>(&state_)) return *v;
    std::fprintf(stderr, "Result holds an error: %s\n", std::get<1>(state_).message.c_str());
    std::abort();
  }
  Error& failure() {
    if (auto* e = std::get_if<1>(&state_)) return *e;
    std::fputs("Result holds a value, not an error\n", stderr);
    std::abort();
  }

  std::variant<T, Error> state_;
};

struct Ok {};
using Status = Result<Ok>;

}  // namespace yard

#define YARD_CONCAT_(a, b) a##b
#define YARD_CONCAT(a, b) YARD_CONCAT_(a, b)
// YARD_TRY(expr): return the Error of `expr` to our caller, or go on.
#define YARD_TRY(expr)                                                               \
  do {                                                                               \
    if (auto yard_r = (expr); !yard_r.has_value()) return std::move(yard_r).error(); \
  } while (false)
// YARD_ASSIGN(auto x, expr): likewise, and bind the value to x.
#define YARD_ASSIGN(decl, expr) YARD_ASSIGN_(YARD_CONCAT(yard_r_, __LINE__), decl, expr)
#define YARD_ASSIGN_(tmp, decl, expr)                  \
  auto tmp = (expr);                                   \
  if (!tmp.has_value()) return std::move(tmp).error(); \
  decl = *std::move(tmp)
#define YARD_CHECK(cond)                                                            \
  do {                                                                              \
    if (!(cond)) {                                                                  \
      std::fprintf(stderr, "%s:%d: check failed: %s\n", __FILE__, __LINE__, #cond); \
      std::abort();                                                                 \
    }                                                                               \
  } while (false)
// For the end of a switch that handled every enumerator.
#define YARD_UNREACHABLE()                                            \
  do {                                                                \
    std::fprintf(stderr, "%s:%d: unreachable\n", __FILE__, __LINE__); \
    std::abort();                                                     \
  } while (false)
