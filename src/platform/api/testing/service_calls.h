// Calls of one Service as a client's, without the wire: the input is checked by the model first.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "api/service.h"
#include "api/validate.h"

namespace yard::api {

inline AwsResult<Json> call_service(Service& service, const std::string& operation,
                                    const Json& input) {
  const auto checked = checked_input(*service.model().find(operation)->input, input);
  if (!checked) return checked.error();
  Call call;
  call.operation = operation;
  call.input = *checked;
  call.endpoint = "http://127.0.0.1:8080";
  return service.call(call);
}

// Its answer; a failure of the test where there is none.
inline Json answer_of(Service& service, const std::string& operation, const Json& input) {
  auto answer = call_service(service, operation, input);
  if (!answer) ADD_FAILURE() << operation << ": " << answer.error().message;
  return answer ? *answer : Json();
}

// AWS's name of its error; empty: it went well.
inline std::string error_code_of(Service& service, const std::string& operation,
                                 const Json& input) {
  const auto answer = call_service(service, operation, input);
  return answer ? "" : answer.error().code;
}

}  // namespace yard::api
