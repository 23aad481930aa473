// What several handlers need.
#include <fmt/format.h>

#include <algorithm>

#include "base/clock.h"
#include "gateway/handlers_internal.h"
#include "gateway/key_path.h"
#include "storage/keys.h"

namespace yard::gateway {
namespace {

constexpr std::string_view kUserPrefix = "x-amz-meta-";
constexpr size_t kUserBytesMax = 2048;
constexpr std::string_view kDefaultType = "binary/octet-stream";

// Given back as they came.
constexpr std::string_view kStoredHeaders[] = {"content-type",        "cache-control",
                                               "content-disposition", "content-language",
                                               "content-encoding",    "expires"};

std::string lower_case(std::string_view text) {
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(),
                         [](char c) { return c >= 'A' && c <= 'Z' ? char(c + 32) : c; });
  return lower;
}

// "aws-chunked" says how the upload came, not how the object is encoded.
std::string without_aws_chunked(std::string_view encoding) {
  std::string kept;
  while (!encoding.empty()) {
    const size_t comma = encoding.find(',');
    std::string_view part = encoding.substr(0, comma);
    encoding.remove_prefix(comma == encoding.npos ? encoding.size() : comma + 1);
    while (part.starts_with(' ')) part.remove_prefix(1);
    while (part.ends_with(' ')) part.remove_suffix(1);
    if (part.empty() || equals_ignoring_case(part, "aws-chunked")) continue;
    kept += (kept.empty() ? "" : ", ") + std::string(part);
  }
  return kept;
}

}  // namespace

S3Status send_xml(Call& call, XmlWriter xml) {
  call.response.headers().set("Content-Type", "application/xml");
  (void)call.response.send(200, xml.take());
  return Ok{};
}

S3Status send_empty(Call& call, int status) {
  (void)call.response.send(status);
  return Ok{};
}

std::string quoted(std::string_view etag) {
  return fmt::format("\"{}\"", etag);
}

std::string format_time(std::chrono::system_clock::time_point time) {
  return to_rfc3339(std::chrono::floor<std::chrono::seconds>(time));
}

S3Result<std::string> read_document(Call& call) {
  YARD_ASSIGN(BodyReader body, BodyReader::open(call.request, call.verified));
  return body.read_all(kXmlBytesMax);
}

S3Status check_key(std::string_view key) {
  if (key.size() > kKeyBytesMax) return s3::kKeyTooLong;
  if (key.empty() || !storage::is_utf8(key)) return s3::kInvalidUri;
  return Ok{};
}

std::string location_of(const Call& call, std::string_view key) {
  return std::string(call.request.is_tls() ? "https://" : "http://") +
         std::string(call.header("host").value_or("")) + "/" + call.route.bucket + "/" +
         percent_encode_path(key);
}

std::string checksum_element(ChecksumAlgorithm algorithm) {
  return "Checksum" + std::string(to_string(algorithm));
}

void set_checksum_headers(Headers& headers, const ObjectChecksum& checksum) {
  headers.set(checksum_header(checksum.algorithm), checksum.base64);
  headers.set("x-amz-checksum-type", to_string(checksum.type));
}

void set_object_headers(Headers& headers, const ObjectFile& object, WithChecksum with_checksum) {
  headers.set("Last-Modified", format_http_date(object.modified()));
  headers.set("ETag", quoted(object.meta.etag));
  headers.set("Accept-Ranges", "bytes");
  headers.set("Content-Type", kDefaultType);
  for (const auto& [name, value] : object.meta.headers) headers.set(name, value);
  for (const auto& [name, value] : object.meta.user)
    headers.set(std::string(kUserPrefix) + name, value);
  if (with_checksum == WithChecksum::kYes && object.meta.checksum)
    set_checksum_headers(headers, *object.meta.checksum);
}

S3Result<ObjectMeta> meta_of_request(const Headers& headers) {
  ObjectMeta meta;
  for (const std::string_view name : kStoredHeaders) {
    const auto value = headers.find(name);
    if (!value || value->empty()) continue;
    std::string text =
        name == "content-encoding" ? without_aws_chunked(*value) : std::string(*value);
    if (!text.empty()) meta.headers.emplace_back(name, std::move(text));
  }
  size_t user_bytes = 0;
  for (const auto& [name, value] : headers) {
    const std::string lower = lower_case(name);
    if (!lower.starts_with(kUserPrefix)) continue;
    std::string own = lower.substr(kUserPrefix.size());
    user_bytes += own.size() + value.size();
    const auto same = std::ranges::find(meta.user, own, &HeaderList::value_type::first);
    if (same != meta.user.end())
      same->second += "," + std::string(value);
    else
      meta.user.emplace_back(std::move(own), value);
  }
  if (user_bytes > kUserBytesMax)
    return S3Error(s3::kMetadataTooLarge)
        .with("Size", std::to_string(user_bytes))
        .with("MaxSizeAllowed", std::to_string(kUserBytesMax));
  return meta;
}

S3Status check_storage_headers(const Headers& headers) {
  constexpr std::string_view kOwnerOnly[] = {"private", "bucket-owner-read",
                                             "bucket-owner-full-control"};
  if (const auto kind = headers.find("x-amz-storage-class"); kind && *kind != "STANDARD")
    return s3::kInvalidStorageClass;
  if (!headers.value_or("x-amz-tagging", "").empty()) return s3::kNotImplemented;
  if (const auto acl = headers.find("x-amz-acl"))
    if (std::ranges::find(kOwnerOnly, *acl) == std::end(kOwnerOnly))
      return S3Error(
          S3ErrorKind{"AccessControlListNotSupported", 400, "The bucket does not allow ACLs"});
  const auto encryption = headers.find("x-amz-server-side-encryption");
  if (encryption && *encryption != "AES256" && !encryption->starts_with("aws:kms"))
    return S3Error(s3::kInvalidArgument, "The encryption method specified is not supported");
  if (headers.contains("x-amz-server-side-encryption-aws-kms-key-id")) return s3::kKmsNotFound;
  for (const auto& [name, value] : headers) {
    const std::string lower = lower_case(name);
    if (lower.starts_with("x-amz-grant-"))
      return S3Error(
          S3ErrorKind{"AccessControlListNotSupported", 400, "The bucket does not allow ACLs"});
    if (lower.starts_with("x-amz-server-side-encryption-customer-") ||
        lower.starts_with("x-amz-copy-source-server-side-encryption-customer-") ||
        lower.starts_with("x-amz-object-lock-") || lower == "x-amz-write-offset-bytes" ||
        lower == "x-amz-website-redirect-location")
      return S3Error(s3::kNotImplemented).with("Header", lower);
  }
  return Ok{};
}

void tell(Call& call, std::string event, std::string key, uint64_t size_bytes, std::string etag) {
  call.services.notifications.tell({.name = std::move(event),
                                    .bucket = call.route.bucket,
                                    .key = std::move(key),
                                    .size_bytes = size_bytes,
                                    .etag = std::move(etag),
                                    .time = call.services.clock.wall_now()});
}

}  // namespace yard::gateway
