#include "gateway/s3_error.h"

#include <cerrno>

#include "base/log.h"

namespace yard::gateway {
namespace {

const S3ErrorKind& kind_of(Code code) {
  const bool may_pass =
      code == Code::kUnavailable || code == Code::kDeadlineExceeded || code == Code::kExhausted;
  return may_pass ? s3::kServiceUnavailable : s3::kInternalError;
}

}  // namespace

S3Error::S3Error(Error error) : S3Error(kind_of(error.code)) {
  log_error("s3: {}", error.message);
}

S3Error s3_errno(std::string_view what, int errno_value) {
  if (errno_value != ENOSPC && errno_value != EDQUOT)
    return S3Error(errno_error(what, errno_value));
  log_error("s3: {}", errno_error(what, errno_value).message);
  return s3::kInsufficientStorage;
}

}  // namespace yard::gateway
