#include "base/result.h"

#include <cerrno>
#include <system_error>

namespace yard {

std::string_view to_string(Code code) {
  switch (code) {
    case Code::kNotFound:
      return "not_found";
    case Code::kInvalidArgument:
      return "invalid_argument";
    case Code::kCorrupt:
      return "corrupt";
    case Code::kUnavailable:
      return "unavailable";
    case Code::kDeadlineExceeded:
      return "deadline_exceeded";
    case Code::kCancelled:
      return "cancelled";
    case Code::kExhausted:
      return "exhausted";
    case Code::kInternal:
      return "internal";
  }
  YARD_UNREACHABLE();
}

namespace {

Code code_of(int errno_value) {
  switch (errno_value) {
    case ENOENT:
    case ENOTDIR:
      return Code::kNotFound;
    case EACCES:
    case EPERM:
    case EROFS:
    case EISDIR:
    case EEXIST:
    case ENAMETOOLONG:
    case ELOOP:
    case EADDRINUSE:
    case EINVAL:
      return Code::kInvalidArgument;
    case ENOSPC:
    case EDQUOT:
    case ENOMEM:
    case EMFILE:
    case ENFILE:
    case EFBIG:
      return Code::kExhausted;
    case ETIMEDOUT:
      return Code::kDeadlineExceeded;
    case ECANCELED:
      return Code::kCancelled;
    case EAGAIN:
    case EINTR:
    case ECONNREFUSED:
    case ECONNRESET:
    case ECONNABORTED:
    case EPIPE:
    case EHOSTUNREACH:
    case ENETUNREACH:
      return Code::kUnavailable;
    default:
      return Code::kInternal;
  }
}

}  // namespace

Error errno_error(std::string_view what, int errno_value) {
  return {code_of(errno_value),
          std::string(what) + ": " + std::generic_category().message(errno_value)};
}

}  // namespace yard
