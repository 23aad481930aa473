// PostObject: an upload by an HTML form, allowed by the policy that is signed in it.
#include "gateway/form.h"
#include "gateway/handlers_internal.h"
#include "gateway/post_policy.h"
#include "net/encoding.h"

namespace yard::gateway {
namespace {

constexpr size_t kFieldsBytesMax = 20 << 10;  // S3's, of all fields before the file
// Of all that a client may send before it is known, which is more than its fields.
constexpr uint64_t kUnknownBytesMax = 256 << 10;
constexpr std::string_view kFileField = "file";
constexpr std::string_view kFilenameVariable = "${filename}";

// Browsers of old sent the whole path.
std::string_view base_name(std::string_view filename) {
  return filename.substr(filename.find_last_of("/\\") + 1);
}

void replace_variable(std::string& text, std::string_view filename) {
  for (size_t at = 0; (at = text.find(kFilenameVariable, at)) != text.npos; at += filename.size())
    text.replace(at, kFilenameVariable.size(), filename);
}

// All fields before the file, whose content comes next.
S3Result<FormFields> read_fields(FormReader& form) {
  FormFields fields;
  std::vector<std::pair<std::string, std::string>> raw;
  size_t left = kFieldsBytesMax;
  for (;;) {
    YARD_ASSIGN(const auto field, form.next());
    if (!field)
      return S3Error(s3::kInvalidArgument, "POST requires exactly one file upload per request.");
    if (equals_ignoring_case(field->name, kFileField)) {
      for (auto& [name, value] : raw) {
        replace_variable(value, base_name(field->filename));
        // Of two values one would be checked and the other used.
        if (fields.find(name))
          return S3Error(s3::kInvalidArgument, "A field of the form stands in it twice.")
              .with("ArgumentName", name);
        fields.add(std::move(name), std::move(value));
      }
      return fields;
    }
    YARD_ASSIGN(std::string value, form.read_text(left));
    left -= std::min(left, value.size() + field->name.size());
    raw.emplace_back(field->name, std::move(value));
  }
}

// The fields that are headers of a PutObject.
S3Result<Headers> headers_of(const FormFields& fields) {
  Headers headers;
  for (const auto& [name, value] : fields) {
    const bool is_text = is_header_name(name) && is_header_value(value);
    if (!is_text && equals_ignoring_case(name.substr(0, 6), "x-amz-"))
      return S3Error(s3::kInvalidArgument, "A field of the form is no header's value.")
          .with("ArgumentName", name);
    if (!is_text) continue;
    headers.add(equals_ignoring_case(name, "acl") ? "x-amz-acl" : name, value);
  }
  if (const auto tags = fields.find("tagging"); tags && !tags->empty()) return s3::kNotImplemented;
  return headers;
}

struct Claim {
  ChecksumAlgorithm algorithm = ChecksumAlgorithm::kCrc64Nvme;
  std::optional<std::string> digest;  // nothing: any will do
};

S3Result<Claim> claim_of(const Headers& headers) {
  Claim claim;
  for (const auto& [name, value] : headers) {
    const auto algorithm = checksum_of_header(name);
    if (!algorithm || *algorithm == ChecksumAlgorithm::kMd5) continue;
    claim = {*algorithm, base64_decode(value)};
    if (!claim.digest || claim.digest->size() != checksum_size_bytes(*algorithm))
      return S3Error(s3::kInvalidRequest, "Value for " + std::string(name) + " header is invalid.");
    return claim;
  }
  if (const auto named = headers.find("x-amz-checksum-algorithm")) {
    const auto algorithm = parse_checksum_algorithm(*named);
    if (!algorithm || *algorithm == ChecksumAlgorithm::kMd5)
      return S3Error(s3::kInvalidRequest, "Checksum algorithm provided is unsupported.");
    claim.algorithm = *algorithm;
  }
  return claim;
}

S3Error out_of_bounds(const S3ErrorKind& kind, std::string_view bound_name, uint64_t bound,
                      uint64_t size_bytes) {
  return S3Error(kind)
      .with("ProposedSize", std::to_string(size_bytes))
      .with(std::string(bound_name), std::to_string(bound));
}

S3Result<BodyDigests> receive_file(FormReader& form, TempFile& file, const FileBounds& bounds,
                                   const Claim& claim) {
  const uint64_t size_bytes_max = std::min(bounds.size_bytes_max, kPutBytesMax);
  Checksum md5(ChecksumAlgorithm::kMd5);
  Checksum wanted(claim.algorithm);
  uint64_t size_bytes = 0;
  YARD_TRY(form.read([&](std::span<const std::byte> bytes) -> S3Status {
    size_bytes += bytes.size();
    if (size_bytes > size_bytes_max)
      return out_of_bounds(s3::kEntityTooLarge, "MaxSizeAllowed", size_bytes_max, size_bytes);
    md5.update(bytes);
    wanted.update(bytes);
    return file.write(bytes);
  }));
  if (size_bytes < bounds.size_bytes_min)
    return out_of_bounds(s3::kEntityTooSmall, "MinSizeAllowed", bounds.size_bytes_min, size_bytes);
  BodyDigests digests{size_bytes, md5.digest(), wanted.digest()};
  if (claim.digest && *claim.digest != digests.wanted) return s3::kBadDigest;
  return digests;
}

bool is_http_url(std::string_view text) {
  return (text.starts_with("http://") || text.starts_with("https://")) && is_header_value(text) &&
         text.find(' ') == text.npos;
}

S3Status answer_form(Call& call, const FormFields& fields, const std::string& key,
                     const std::string& etag) {
  Headers& headers = call.response.headers();
  const std::string location = location_of(call, key);
  headers.set("ETag", quoted(etag));
  const std::string_view redirect =
      fields.value_or("success_action_redirect", fields.value_or("redirect", ""));
  if (is_http_url(redirect)) {
    headers.set("Location",
                std::string(redirect) + (redirect.find('?') == redirect.npos ? "?" : "&") +
                    "bucket=" + percent_encode(call.route.bucket) + "&key=" + percent_encode(key) +
                    "&etag=" + percent_encode(quoted(etag)));
    return send_empty(call, 303);
  }
  headers.set("Location", location);
  const std::string_view status = fields.value_or("success_action_status", "");
  if (status == "200") return send_empty(call, 200);
  if (status != "201") return send_empty(call, 204);
  XmlWriter xml("PostResponse", XmlWriter::Namespace::kNone);
  xml.text("Location", location).text("Bucket", call.route.bucket).text("Key", key);
  xml.text("ETag", quoted(etag));
  headers.set("Content-Type", "application/xml");
  (void)call.response.send(201, xml.take());
  return Ok{};
}

// Reads the fields, and whether they may come from whom they come.
S3Result<FormFields> read_signed_fields(Call& call, FormReader& form) {
  auto& room = call.services.unknown_forms;
  if (!room.try_acquire())
    return S3Error(S3ErrorKind{"SlowDown", 503, "Please reduce your request rate."});
  auto fields = read_fields(form);
  room.release();
  if (!fields) return fields;
  const std::string_view access_key = form_access_key(*fields);
  YARD_TRY(check_form_signature(*fields, call.services.credentials_of(access_key),
                                call.services.clock.wall_now()));
  YARD_TRY(check_access(call, access_key));
  return fields;
}

}  // namespace

S3Status post_object(Call& call) {
  const auto boundary = form_boundary(call.header("content-type").value_or(""));
  if (!boundary)
    return S3Error(s3::kPreconditionFailed,
                   "Bucket POST must be of the enclosure-type multipart/form-data");
  if (!call.request.content_length()) return s3::kMissingContentLength;
  bool is_known = false;
  uint64_t unknown_bytes = 0;
  FormReader form(*boundary, [&](std::span<std::byte> into) -> S3Result<size_t> {
    if (!is_known && unknown_bytes > kUnknownBytesMax) return kFormFieldsTooLong;
    auto bytes = call.request.read(into);
    if (!bytes) return S3Error(s3::kConnectionBroken, bytes.error().message);
    unknown_bytes += *bytes;
    return *bytes;
  });
  YARD_ASSIGN(const FormFields fields, read_signed_fields(call, form));
  is_known = true;
  YARD_ASSIGN(Bucket bucket, call.bucket());
  YARD_ASSIGN(const FileBounds bounds,
              check_policy(fields, call.route.bucket, call.services.clock.wall_now()));
  const std::string key(fields.value_or("key", ""));
  YARD_TRY(check_key(key));
  YARD_ASSIGN(const Headers headers, headers_of(fields));
  YARD_TRY(check_storage_headers(headers));
  YARD_ASSIGN(ObjectMeta meta, meta_of_request(headers));
  YARD_ASSIGN(const Claim claim, claim_of(headers));
  YARD_ASSIGN(TempFile file, call.services.root->make_temp_file());
  YARD_ASSIGN(const BodyDigests digests, receive_file(form, file, bounds, claim));
  meta.etag = hex_encode(bytes_of(digests.md5));
  meta.checksum = ObjectChecksum{claim.algorithm, ChecksumType::kFullObject,
                                 base64_encode(bytes_of(digests.wanted))};
  const auto anyway = [](const ObjectFile*) -> S3Status { return Ok{}; };
  YARD_TRY(bucket.store(std::move(file), meta, key, anyway));
  tell(call, "ObjectCreated:Post", key, digests.size_bytes, meta.etag);
  set_checksum_headers(call.response.headers(), *meta.checksum);
  return answer_form(call, fields, key, meta.etag);
}

}  // namespace yard::gateway
