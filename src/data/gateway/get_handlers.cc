// GetObject and HeadObject.
#include <fmt/format.h>
#include <unistd.h>

#include <charconv>

#include "base/log.h"
#include "gateway/handlers_internal.h"

namespace yard::gateway {
namespace {

// Up to here an answer is one system call, its body read into memory first.
constexpr uint64_t kSmallBytes = 128 << 10;

struct Override {
  std::string_view parameter;
  std::string_view header;
};
constexpr Override kOverrides[] = {{"response-content-type", "Content-Type"},
                                   {"response-content-language", "Content-Language"},
                                   {"response-expires", "Expires"},
                                   {"response-cache-control", "Cache-Control"},
                                   {"response-content-disposition", "Content-Disposition"},
                                   {"response-content-encoding", "Content-Encoding"}};

// Nothing here has versions; "null" is S3's name of an object's only one.
S3Status check_version(std::string_view version_id) {
  if (version_id.empty() || version_id == "null") return Ok{};
  return s3::kNoSuchVersion;
}

bool is_unchanged(const ObjectFile& object) {
  struct stat info = {};
  return ::fstat(object.fd.get(), &info) == 0 && stamp_of(info) == object.stamp;
}

// The file was rewritten in place, not replaced: what was sent may be of two contents.
void break_off(Call& call) {
  log_warning("s3: {}/{} changed while it was read", call.route.bucket, call.route.key);
  call.response.abort();
}

void send_small(Call& call, const ObjectFile& object, int status, const ByteRange& range) {
  thread_local std::string buffer;
  buffer.resize(range.length);
  size_t got = 0;
  while (got < buffer.size()) {
    const ssize_t bytes = ::pread(object.fd.get(), buffer.data() + got, buffer.size() - got,
                                  off_t(range.offset + got));
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes <= 0) return break_off(call);
    got += size_t(bytes);
  }
  if (!is_unchanged(object)) return break_off(call);
  (void)call.response.send(status, buffer);
}

// The last bytes go out only when the file is still the one whose ETag stands in the head.
void send_large(Call& call, const ObjectFile& object, int status, const ByteRange& range) {
  const uint64_t first_bytes = range.length - kSmallBytes;
  if (!call.response.start(status, range.length)) return;
  if (!call.response.write_file(object.fd.get(), range.offset, first_bytes)) return;
  if (!is_unchanged(object)) return break_off(call);
  (void)call.response.write_file(object.fd.get(), range.offset + first_bytes, kSmallBytes);
}

struct Selection {
  std::optional<ByteRange> range;  // nothing: the whole object
  bool is_part = false;
};

S3Result<Selection> select_part(const ObjectFile& object, std::string_view part_number) {
  constexpr S3ErrorKind kInvalidPartNumber{"InvalidPartNumber", 416,
                                           "The requested partnumber is not satisfiable"};
  uint32_t number = 0;
  const auto [end, failed] =
      std::from_chars(part_number.data(), part_number.data() + part_number.size(), number);
  if (failed != std::errc{} || end != part_number.data() + part_number.size() || number < 1 ||
      number > 10'000)
    return S3Error(s3::kInvalidArgument,
                   "Part number must be an integer between 1 and 10000, inclusive");
  const auto& sizes = object.meta.part_sizes_bytes;
  if (sizes.empty() && number == 1) return Selection{ByteRange{0, object.size_bytes()}, true};
  if (number > sizes.size()) return kInvalidPartNumber;
  uint64_t offset = 0;
  for (uint32_t i = 0; i + 1 < number; ++i) offset += sizes[i];
  return Selection{ByteRange{offset, sizes[number - 1]}, true};
}

S3Result<Selection> select(const Call& call, const ObjectFile& object) {
  const auto range = call.header("range");
  const auto part_number = call.route.parameter("partNumber");
  if (part_number && range)
    return S3Error(s3::kInvalidRequest,
                   "Cannot specify both Range header and partNumber query parameter");
  if (part_number) return select_part(object, *part_number);
  if (!range) return Selection{};
  YARD_ASSIGN(const auto bytes, parse_range(*range, object.size_bytes()));
  return Selection{bytes, false};
}

}  // namespace

S3Result<ObjectFile> open_object(Call& call) {
  YARD_TRY(check_version(call.route.parameter("versionId").value_or("")));
  if (call.headers().contains("x-amz-server-side-encryption-customer-algorithm"))
    return s3::kNotImplemented;
  YARD_ASSIGN(const Bucket bucket, call.bucket());
  auto object = bucket.open(call.route.key);
  if (!object && object.error().code == s3::kNoSuchKey.code)
    return std::move(object).error().with("Key", call.route.key);
  return object;
}

S3Status get_object(Call& call) {
  YARD_ASSIGN(const ObjectFile object, open_object(call));
  Headers& headers = call.response.headers();
  const bool wants_checksum =
      equals_ignoring_case(call.header("x-amz-checksum-mode").value_or(""), "ENABLED");
  headers.set("Last-Modified", format_http_date(object.modified()));
  headers.set("ETag", quoted(object.meta.etag));
  YARD_TRY(check_read_conditions(call.headers(), {object.meta.etag, object.modified()}));
  YARD_ASSIGN(const Selection selection, select(call, object));
  // A checksum is of the whole.
  set_object_headers(headers, object,
                     wants_checksum && !selection.range ? WithChecksum::kYes : WithChecksum::kNo);
  for (const auto& [parameter, header] : kOverrides) {
    const auto value = call.route.parameter(parameter);
    if (!value) continue;
    if (!is_header_value(*value)) return s3::kInvalidArgument;
    headers.set(header, *value);
  }
  if (selection.is_part && !object.meta.part_sizes_bytes.empty())
    headers.set("x-amz-mp-parts-count", std::to_string(object.meta.part_sizes_bytes.size()));
  const ByteRange range = selection.range.value_or(ByteRange{0, object.size_bytes()});
  if (selection.range && range.length > 0)
    headers.set("Content-Range", fmt::format("bytes {}-{}/{}", range.offset,
                                             range.offset + range.length - 1, object.size_bytes()));
  const int status = selection.range ? 206 : 200;
  if (call.request.method() == "HEAD")
    (void)call.response.send_file(status, object.fd.get(), range.offset, range.length);
  else if (range.length <= kSmallBytes)
    send_small(call, object, status, range);
  else
    send_large(call, object, status, range);
  return Ok{};
}

S3Status head_object(Call& call) {
  return get_object(call);
}

}  // namespace yard::gateway
