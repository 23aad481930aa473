#include "gateway/conditions.h"

#include <fmt/format.h>

#include <charconv>

namespace yard::gateway {
namespace {

std::string_view trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

// "*", or a list of tags, with quotes or without; a weak one is compared like the others.
bool matches(std::string_view list, std::string_view etag) {
  while (!list.empty()) {
    const size_t comma = list.find(',');
    std::string_view tag = trim(list.substr(0, comma));
    list.remove_prefix(comma == list.npos ? list.size() : comma + 1);
    if (tag == "*") return true;
    if (tag.starts_with("W/")) tag.remove_prefix(2);
    if (tag.size() >= 2 && tag.front() == '"' && tag.back() == '"')
      tag = tag.substr(1, tag.size() - 2);
    if (tag == etag) return true;
  }
  return false;
}

std::optional<std::chrono::system_clock::time_point> date_of(const Headers& headers,
                                                             std::string_view name) {
  const auto text = headers.find(name);
  if (!text) return std::nullopt;
  const auto date = parse_http_date(*text);
  return date ? std::optional(*date) : std::nullopt;
}

S3Error precondition_failed(std::string_view header) {
  return S3Error(s3::kPreconditionFailed).with("Condition", std::string(header));
}

std::optional<uint64_t> parse_position(std::string_view text) {
  uint64_t number = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (text.empty() || failed != std::errc{} || end != text.data() + text.size())
    return std::nullopt;
  return number;
}

S3Error range_error(std::string_view header, uint64_t size_bytes) {
  return S3Error(s3::kInvalidRange)
      .with("RangeRequested", std::string(header))
      .with("ActualObjectSize", std::to_string(size_bytes));
}

struct RangeText {
  std::string_view first;
  std::string_view last;
};

std::optional<RangeText> split_range(std::string_view header) {
  constexpr std::string_view kUnit = "bytes=";
  if (!header.starts_with(kUnit)) return std::nullopt;
  const std::string_view range = trim(header.substr(kUnit.size()));
  const size_t dash = range.find('-');
  if (dash == range.npos || range.find(',') != range.npos) return std::nullopt;
  return RangeText{range.substr(0, dash), range.substr(dash + 1)};
}

}  // namespace

S3Status check_read_conditions(const Headers& headers, const ObjectVersion& version,
                               const ConditionNames& names) {
  const auto if_match = headers.find(names.if_match);
  const auto if_none_match = headers.find(names.if_none_match);
  if (if_match && !matches(*if_match, version.etag)) return precondition_failed("If-Match");
  const auto unmodified_since = date_of(headers, names.if_unmodified_since);
  if (!if_match && unmodified_since && version.modified > *unmodified_since)
    return precondition_failed("If-Unmodified-Since");
  if (if_none_match && matches(*if_none_match, version.etag)) return s3::kNotModified;
  const auto modified_since = date_of(headers, names.if_modified_since);
  if (!if_none_match && modified_since && version.modified <= *modified_since)
    return s3::kNotModified;
  return Ok{};
}

S3Status check_write_conditions(const Headers& headers, const ObjectVersion* existing) {
  if (const auto if_none_match = headers.find("if-none-match");
      if_none_match && existing != nullptr)
    if (matches(*if_none_match, existing->etag)) return precondition_failed("If-None-Match");
  if (const auto if_match = headers.find("if-match")) {
    if (existing == nullptr) return s3::kNoSuchKey;
    if (!matches(*if_match, existing->etag)) return precondition_failed("If-Match");
  }
  return Ok{};
}

S3Result<std::optional<ByteRange>> parse_range(std::string_view header, uint64_t size_bytes) {
  const auto text = split_range(header);
  if (!text) return std::optional<ByteRange>();
  const auto first = parse_position(text->first);
  const auto last = parse_position(text->last);
  if (text->first.empty() && last) {  // the last bytes
    if (*last == 0 || size_bytes == 0) return range_error(header, size_bytes);
    const uint64_t length = std::min(*last, size_bytes);
    return std::optional(ByteRange{size_bytes - length, length});
  }
  if (!first || (!last && !text->last.empty()) || (last && *last < *first))
    return std::optional<ByteRange>();
  if (*first >= size_bytes) return range_error(header, size_bytes);
  return std::optional(
      ByteRange{*first, std::min(last.value_or(UINT64_MAX), size_bytes - 1) - *first + 1});
}

S3Result<ByteRange> parse_copy_range(std::string_view header, uint64_t size_bytes) {
  const auto text = split_range(header);
  const auto first = text ? parse_position(text->first) : std::nullopt;
  const auto last = text ? parse_position(text->last) : std::nullopt;
  if (!first || !last || *last < *first)
    return S3Error(s3::kInvalidArgument,
                   "The x-amz-copy-source-range value must be of the form bytes=first-last where "
                   "first and last are the zero-based offsets of the first and last bytes to copy");
  if (*last >= size_bytes)
    return S3Error(
        s3::kInvalidArgument,
        fmt::format("Range specified is not valid for source object of size: {}", size_bytes));
  return ByteRange{*first, *last - *first + 1};
}

}  // namespace yard::gateway
