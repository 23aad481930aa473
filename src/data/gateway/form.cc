#include "gateway/form.h"

#include <algorithm>

#include "net/http_message.h"

namespace yard::gateway {
namespace {

constexpr size_t kPieceBytes = 64 << 10;
constexpr size_t kLineBytesMax = 4 << 10;
constexpr int kHeaderLinesMax = 16;

constexpr S3ErrorKind kMalformed{
    "MalformedPOSTRequest", 400,
    "The body of your POST request is not well-formed multipart/form-data."};
std::string_view trimmed(std::string_view text) {
  const auto is_blank = [](char c) { return c == ' ' || c == '\t'; };
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

struct Parameter {
  std::string_view name;
  std::string value;
};

// One of "; name=value; name="va\"lue"", taken from the front of `text`; nothing where none is.
std::optional<Parameter> take_parameter(std::string_view& text) {
  text = trimmed(text);
  if (!text.starts_with(';')) return std::nullopt;
  text.remove_prefix(1);
  const size_t equals = text.find('=');
  if (equals == text.npos) return std::nullopt;
  Parameter parameter{trimmed(text.substr(0, equals)), {}};
  text = trimmed(text.substr(equals + 1));
  if (!text.starts_with('"')) {
    const size_t end = std::min(text.find(';'), text.size());
    parameter.value = trimmed(text.substr(0, end));
    text.remove_prefix(end);
    return parameter;
  }
  for (text.remove_prefix(1); !text.empty(); text.remove_prefix(1)) {
    if (text.front() == '"') {
      text.remove_prefix(1);
      return parameter;
    }
    // Only these: Windows' browsers send paths with plain backslashes.
    if (text.starts_with("\\\"") || text.starts_with("\\\\")) text.remove_prefix(1);
    parameter.value += text.front();
  }
  return std::nullopt;
}

// The part of a header value before its parameters.
std::string_view take_type(std::string_view& text) {
  const size_t end = std::min(text.find(';'), text.size());
  const std::string_view type = trimmed(text.substr(0, end));
  text.remove_prefix(end);
  return type;
}

std::optional<FormReader::Field> field_of(std::string_view disposition) {
  if (!equals_ignoring_case(take_type(disposition), "form-data")) return std::nullopt;
  FormReader::Field field;
  while (const auto parameter = take_parameter(disposition)) {
    if (equals_ignoring_case(parameter->name, "name")) field.name = parameter->value;
    if (equals_ignoring_case(parameter->name, "filename")) field.filename = parameter->value;
  }
  if (!trimmed(disposition).empty() || field.name.empty()) return std::nullopt;
  return field;
}

}  // namespace

std::optional<std::string> form_boundary(std::string_view content_type) {
  if (!equals_ignoring_case(take_type(content_type), "multipart/form-data")) return std::nullopt;
  while (const auto parameter = take_parameter(content_type)) {
    if (!equals_ignoring_case(parameter->name, "boundary")) continue;
    if (parameter->value.empty() || parameter->value.size() > 70) return std::nullopt;
    return parameter->value;
  }
  return std::nullopt;
}

// A delimiter begins with a line's end; the first one may stand at the body's very start.
FormReader::FormReader(std::string_view boundary, Source source)
    : delimiter_("\r\n--" + std::string(boundary)), source_(std::move(source)), buffer_("\r\n") {}

// More bytes behind those that are there. IncompleteBody at the end.
S3Status FormReader::fill() {
  buffer_.erase(0, at_);
  at_ = 0;
  const size_t before = buffer_.size();
  buffer_.resize(before + kPieceBytes);
  auto got = source_(std::as_writable_bytes(std::span(buffer_).subspan(before)));
  buffer_.resize(before + (got ? *got : 0));
  if (!got) return std::move(got).error();
  if (*got == 0) return s3::kIncompleteBody;
  return Ok{};
}

S3Result<std::string> FormReader::read_line() {
  for (;;) {
    const size_t end = buffer_.find("\r\n", at_);
    if (end != buffer_.npos && end - at_ <= kLineBytesMax) {
      std::string line = buffer_.substr(at_, end - at_);
      at_ = end + 2;
      return line;
    }
    if (buffer_.size() - at_ > kLineBytesMax + 1) return kMalformed;  // its "\r" may be there
    YARD_TRY(fill());
  }
}

S3Result<std::optional<FormReader::Field>> FormReader::next() {
  // What stands before the first boundary means nothing.
  if (!std::exchange(has_begun_, true)) YARD_TRY(read([](auto) -> S3Status { return Ok{}; }));
  YARD_ASSIGN(const std::string rest, read_line_or_end());
  if (rest.starts_with("--")) return std::optional<Field>();
  if (!trimmed(rest).empty()) return kMalformed;
  std::optional<Field> field;
  for (int count = 0; count < kHeaderLinesMax; ++count) {
    YARD_ASSIGN(const std::string line, read_line());
    if (line.empty()) {
      if (field) return field;
      return kMalformed;
    }
    const size_t colon = line.find(':');
    if (colon == line.npos) return kMalformed;
    if (!equals_ignoring_case(trimmed(std::string_view(line).substr(0, colon)),
                              "content-disposition"))
      continue;
    field = field_of(std::string_view(line).substr(colon + 1));
    if (!field) return kMalformed;
  }
  return kMalformed;
}

// Behind a boundary: "--" of the last one, which nothing needs to follow, or the rest of its line.
S3Result<std::string> FormReader::read_line_or_end() {
  while (buffer_.size() - at_ < 2) YARD_TRY(fill());
  if (buffer_.compare(at_, 2, "--") == 0) return std::string("--");
  return read_line();
}

S3Status FormReader::read(const Sink& sink) {
  for (;;) {
    const size_t end = buffer_.find(delimiter_, at_);
    // A delimiter may have begun in the last bytes.
    const size_t sure = end != buffer_.npos ? end
                                            : buffer_.size() - std::min(buffer_.size() - at_,
                                                                        delimiter_.size() - 1);
    if (sure > at_) YARD_TRY(sink(std::as_bytes(std::span(buffer_).subspan(at_, sure - at_))));
    at_ = sure;
    if (end != buffer_.npos) {
      at_ = end + delimiter_.size();
      return Ok{};
    }
    YARD_TRY(fill());
  }
}

S3Result<std::string> FormReader::read_text(size_t size_bytes_max) {
  std::string text;
  YARD_TRY(read([&](std::span<const std::byte> bytes) -> S3Status {
    if (text.size() + bytes.size() > size_bytes_max) return kFormFieldsTooLong;
    text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return Ok{};
  }));
  return text;
}

}  // namespace yard::gateway
