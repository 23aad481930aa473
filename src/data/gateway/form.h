// FormReader: a multipart/form-data body (RFC 7578), field by field, as it comes.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "gateway/s3_error.h"

namespace yard::gateway {

inline constexpr S3ErrorKind kFormFieldsTooLong{
    "MaxPostPreDataLengthExceededError", 400,
    "Your POST request fields preceding the upload file were too large."};

// The boundary in a Content-Type "multipart/form-data; boundary=..."; nothing for another type, or
// a boundary that is none (RFC 2046: 1 to 70 characters).
std::optional<std::string> form_boundary(std::string_view content_type);

// Not thread-safe. Holds 64 KiB and what `source` gives at once.
class FormReader {
 public:
  // Fills the span from its start with what follows, at most; 0: the body's end.
  using Source = std::function<S3Result<size_t>(std::span<std::byte> into)>;
  using Sink = std::function<S3Status(std::span<const std::byte> bytes)>;

  FormReader(std::string_view boundary, Source source);

  struct Field {
    std::string name;
    std::string filename;
  };
  // The next field, once the one before has been read; nothing behind the last one.
  // MalformedPOSTRequest; IncompleteBody: the body ended before its last boundary.
  S3Result<std::optional<Field>> next();
  S3Status read(const Sink& sink);
  // MaxPostPreDataLengthExceeded beyond `size_bytes_max`.
  S3Result<std::string> read_text(size_t size_bytes_max);

 private:
  S3Status fill();
  S3Result<std::string> read_line();
  S3Result<std::string> read_line_or_end();

  const std::string delimiter_;  // "\r\n--boundary"
  const Source source_;
  std::string buffer_;
  size_t at_ = 0;  // what lies before is used
  bool has_begun_ = false;
};

}  // namespace yard::gateway
