#include "api/aws_error.h"

namespace yard::api {
namespace {

struct Told {
  const char* code;
  int http_status;
};

Told told_as(Code code) {
  switch (code) {
    case Code::kNotFound:
      return {"ResourceNotFound", 400};
    case Code::kInvalidArgument:
      return {"ValidationException", 400};
    case Code::kExhausted:
      return {"ThrottlingException", 400};
    case Code::kUnavailable:
    case Code::kDeadlineExceeded:
    case Code::kCancelled:
      return {"ServiceUnavailable", 503};
    case Code::kCorrupt:
    case Code::kInternal:
      return {"InternalFailure", 500};
  }
  YARD_UNREACHABLE();
}

bool is_ours_alone(Code code) {
  return code == Code::kCorrupt || code == Code::kInternal;
}

}  // namespace

AwsError::AwsError(Error error)
    : code(told_as(error.code).code), http_status(told_as(error.code).http_status) {
  if (is_ours_alone(error.code)) {
    message = "The request failed because of an error inside the server; its log says more.";
    log_message = std::move(error.message);
  } else {
    message = std::move(error.message);
  }
}

AwsError validation_error(std::string message) {
  return AwsError("ValidationException", std::move(message));
}

}  // namespace yard::api
