// AwsError: what a client of an AWS API is told when its request fails; AwsResult carries it.
#pragma once

#include <string>
#include <utility>
#include <variant>

#include "base/result.h"

namespace yard::api {

struct AwsError {
  AwsError(std::string code, std::string message, int http_status = 400)
      : code(std::move(code)), message(std::move(message)), http_status(http_status) {}
  // What went wrong below the API, by code: kUnavailable and kDeadlineExceeded are
  // ServiceUnavailable (503), kExhausted is ThrottlingException (400), both of which clients
  // repeat; kInvalidArgument is ValidationException, kNotFound ResourceNotFound, the rest
  // InternalFailure (500), whose text is for our log and not for the client.
  AwsError(Error error);

  std::string code;  // AWS's name: "ValidationException"
  // The name in the Query form, where that is another one: "AWS.SimpleQueueService...".
  std::string query_code;
  std::string message;
  int http_status;
  std::string log_message;  // only where it says more than `message`
};

// As Result, with AwsError. YARD_TRY and YARD_ASSIGN work on it; a Result's Error passes into it.
template <typename T>
class [[nodiscard]] AwsResult {
 public:
  AwsResult(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  AwsResult(AwsError error) : state_(std::in_place_index<1>, std::move(error)) {}
  AwsResult(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool has_value() const { return state_.index() == 0; }
  explicit operator bool() const { return has_value(); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return const_cast<AwsResult*>(this)->value(); }
  T&& operator*() && { return std::move(value()); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &const_cast<AwsResult*>(this)->value(); }
  const AwsError& error() const& { return const_cast<AwsResult*>(this)->failure(); }
  AwsError&& error() && { return std::move(failure()); }

 private:
  T& value() {
    YARD_CHECK(state_.index() == 0);
    return *std::get_if<0>(&state_);
  }
  AwsError& failure() {
    YARD_CHECK(state_.index() == 1);
    return *std::get_if<1>(&state_);
  }

  std::variant<T, AwsError> state_;
};

using AwsStatus = AwsResult<Ok>;

// Its name where Query is spoken.
inline const std::string& query_name(const AwsError& error) {
  return error.query_code.empty() ? error.code : error.query_code;
}

AwsError validation_error(std::string message);  // ValidationException, 400

}  // namespace yard::api
