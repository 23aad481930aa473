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
  const Error error = errno_error(what, errno_value);
  const bool is_full = errno_value == ENOSPC || errno_value == EDQUOT;
  const bool is_denied = errno_value == EACCES || errno_value == EPERM || errno_value == EROFS;
  if (!is_full && !is_denied) return S3Error(error);
  log_error("s3: {}", error.message);
  return is_full ? s3::kInsufficientStorage : s3::kAccessDenied;
}

}  // namespace yard::gateway
