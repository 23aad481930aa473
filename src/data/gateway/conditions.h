// What a request asks of an object before it is read or replaced, and which part of it. Pure
// functions (RFC 9110 sections 13 and 14, with S3's answers).
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "gateway/s3_error.h"
#include "net/http_message.h"

namespace yard::gateway {

// The version of an object that conditions speak of.
struct ObjectVersion {
  std::string_view etag;  // without quotes
  std::chrono::system_clock::time_point modified;
};

// The headers that carry the conditions: those of a read, or of the source of a copy.
struct ConditionNames {
  std::string_view if_match = "if-match";
  std::string_view if_none_match = "if-none-match";
  std::string_view if_modified_since = "if-modified-since";
  std::string_view if_unmodified_since = "if-unmodified-since";
};
inline constexpr ConditionNames kCopySourceConditions = {
    "x-amz-copy-source-if-match", "x-amz-copy-source-if-none-match",
    "x-amz-copy-source-if-modified-since", "x-amz-copy-source-if-unmodified-since"};

// PreconditionFailed, NotModified, or Ok. A date that is none is no condition.
S3Status check_read_conditions(const Headers& headers, const ObjectVersion& version,
                               const ConditionNames& names = {});
// If-Match and If-None-Match of a write; `existing` is null for a new key. PreconditionFailed,
// NoSuchKey (If-Match on nothing).
S3Status check_write_conditions(const Headers& headers, const ObjectVersion* existing);

struct ByteRange {
  uint64_t offset = 0;
  uint64_t length = 0;
  bool operator==(const ByteRange&) const = default;
};

// The one range of a Range header, cut at the object's end. Nothing for a header that is to be
// ignored: another unit, several ranges, malformed. InvalidRange when it lies past the end.
S3Result<std::optional<ByteRange>> parse_range(std::string_view header, uint64_t size_bytes);
// x-amz-copy-source-range: "bytes=first-last", both given and inside of the object; else
// InvalidArgument.
S3Result<ByteRange> parse_copy_range(std::string_view header, uint64_t size_bytes);

}  // namespace yard::gateway
