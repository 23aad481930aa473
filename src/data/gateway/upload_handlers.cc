// Multipart uploads, but for the copying of parts.
#include <charconv>
#include <optional>
#include <vector>

#include "gateway/keep_alive_internal.h"
#include "net/aws_chunked.h"
#include "net/encoding.h"

namespace yard::gateway {
namespace {

S3Result<ChecksumType> checksum_type_of(std::string_view named, ChecksumAlgorithm algorithm,
                                        bool names_algorithm) {
  const bool joins = is_crc(algorithm);
  if (named.empty())
    return names_algorithm && algorithm != ChecksumAlgorithm::kCrc64Nvme
               ? ChecksumType::kComposite
               : ChecksumType::kFullObject;
  if (named == "COMPOSITE" && algorithm != ChecksumAlgorithm::kCrc64Nvme)
    return ChecksumType::kComposite;
  if (named == "FULL_OBJECT" && joins) return ChecksumType::kFullObject;
  return S3Error(s3::kInvalidRequest,
                 "The " + std::string(named) + " checksum type cannot be used with the " +
                     std::string(to_string(algorithm)) + " checksum algorithm.");
}

// What CompleteMultipartUpload says of the whole object in its headers.
S3Status check_object_headers(const Headers& headers, const Assembly& assembly) {
  for (const auto& [name, value] : headers) {
    const auto algorithm = checksum_of_header(name);
    if (!algorithm || *algorithm == ChecksumAlgorithm::kMd5) continue;
    if (*algorithm != assembly.checksum.algorithm)
      return S3Error(s3::kInvalidRequest,
                     "The upload was created using another checksum algorithm.");
    // A composite may come without its "-N".
    if (value != assembly.checksum.base64 &&
        value != assembly.checksum.base64.substr(0, assembly.checksum.base64.find('-')))
      return s3::kBadDigest;
  }
  if (const auto type = headers.find("x-amz-checksum-type"))
    if (*type != to_string(assembly.checksum.type))
      return S3Error(s3::kInvalidRequest, "The upload was created using another checksum type.");
  if (const auto size = headers.find("x-amz-mp-object-size"))
    if (*size != std::to_string(assembly.size_bytes))
      return S3Error(s3::kInvalidRequest, "The object's size is not the x-amz-mp-object-size.");
  return Ok{};
}

S3Result<Assembly> complete_now(Call& call, Bucket& bucket,
                                const std::vector<CompletedPart>& wanted, KeepAlive& keep_alive) {
  YARD_ASSIGN(const UploadInfo upload, upload_of(call));
  YARD_ASSIGN(const auto uploaded, call.services.uploads.parts(upload));
  YARD_ASSIGN(Assembly assembly, plan_assembly(upload, uploaded, wanted));
  YARD_TRY(check_object_headers(call.headers(), assembly));
  YARD_TRY(check_early(call, bucket));
  YARD_TRY(call.services.uploads.complete(upload, assembly, bucket, write_conditions(call),
                                          [&] { keep_alive.tick(); }));
  tell(call, "ObjectCreated:CompleteMultipartUpload", upload.key, assembly.size_bytes,
       assembly.etag);
  return assembly;
}

// A client whose answer was lost asks again: it is told the same as long as the object stands.
std::optional<Assembly> completed_before(Call& call, const Bucket& bucket,
                                         const std::vector<CompletedPart>& wanted) {
  const std::string_view id = call.route.parameter("uploadId").value_or("");
  const auto object = bucket.open(call.route.key);
  if (!object) return std::nullopt;
  auto assembly = find_assembly(*object, id, wanted);
  if (!assembly || !check_object_headers(call.headers(), *assembly)) return std::nullopt;
  // A gateway that was killed just after it had made the object leaves the upload behind.
  if (const auto left = upload_of(call)) (void)call.services.uploads.abort(*left);
  return assembly;
}

}  // namespace

S3Result<UploadInfo> upload_of(const Call& call) {
  return call.services.uploads.find(call.route.bucket, call.route.key,
                                    call.route.parameter("uploadId").value_or(""));
}

S3Result<uint32_t> part_number_of(const Route& route) {
  const std::string_view text = route.parameter("partNumber").value_or("");
  uint32_t number = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failed == std::errc{} && end == text.data() + text.size() && number >= 1 &&
      number <= kPartCountMax)
    return number;
  return S3Error(s3::kInvalidArgument,
                 "Part number must be an integer between 1 and 10000, inclusive")
      .with("ArgumentName", "partNumber")
      .with("ArgumentValue", std::string(text));
}

S3Status create_upload(Call& call) {
  YARD_TRY(check_storage_headers(call.headers()));
  YARD_TRY(call.bucket());
  UploadInfo upload{
      .bucket = call.route.bucket, .key = call.route.key, .begun = call.services.clock.wall_now()};
  YARD_ASSIGN(upload.meta, meta_of_request(call.headers()));
  const auto named = call.header("x-amz-checksum-algorithm");
  if (named) {
    const auto algorithm = parse_checksum_algorithm(*named);
    if (!algorithm || *algorithm == ChecksumAlgorithm::kMd5)
      return S3Error(s3::kInvalidRequest, "Checksum algorithm provided is unsupported.");
    upload.algorithm = *algorithm;
    upload.names_algorithm = true;
  }
  YARD_ASSIGN(upload.checksum_type,
              checksum_type_of(call.header("x-amz-checksum-type").value_or(""), upload.algorithm,
                               upload.names_algorithm));
  YARD_ASSIGN(upload, call.services.uploads.begin(std::move(upload)));
  if (upload.names_algorithm) {
    call.response.headers().set("x-amz-checksum-algorithm", to_string(upload.algorithm));
    call.response.headers().set("x-amz-checksum-type", to_string(upload.checksum_type));
  }
  call.response.headers().set(kTakesTrailersHeader, "1");
  XmlWriter xml("InitiateMultipartUploadResult");
  xml.text("Bucket", upload.bucket).text("Key", upload.key).text("UploadId", upload.id);
  return send_xml(call, std::move(xml));
}

S3Status upload_part(Call& call) {
  YARD_TRY(check_storage_headers(call.headers()));
  YARD_TRY(call.bucket());
  YARD_ASSIGN(const uint32_t number, part_number_of(call.route));
  YARD_ASSIGN(const UploadInfo upload, upload_of(call));
  YARD_ASSIGN(BodyReader body, BodyReader::open(call.request, call.verified));
  const auto claimed = body.claimed_algorithm();
  if (upload.names_algorithm && claimed && *claimed != upload.algorithm)
    return S3Error(s3::kInvalidRequest,
                   "Checksum Type mismatch occurred, expected checksum Type: " +
                       std::string(to_string(upload.algorithm)) +
                       ", actual checksum Type: " + std::string(to_string(*claimed)));
  YARD_TRY(check_body_size(body));
  YARD_ASSIGN(PartFile file, call.services.uploads.open_part(upload, number, body.size_bytes()));
  YARD_ASSIGN(const BodyDigests digests, receive(call, body, file, upload.algorithm));
  YARD_TRY(call.services.uploads.put_part(upload, number, std::move(file), digests));
  Headers& headers = call.response.headers();
  headers.set("ETag", quoted(hex_encode(bytes_of(digests.md5))));
  headers.set(checksum_header(upload.algorithm), base64_encode(bytes_of(digests.wanted)));
  return send_empty(call, 200);
}

S3Status complete_upload(Call& call) {
  YARD_ASSIGN(Bucket bucket, call.bucket());
  YARD_ASSIGN(BodyReader body,
              BodyReader::open(call.request, call.verified, BodyReader::Checksums::kOfObject));
  YARD_ASSIGN(const std::string document, body.read_all(kXmlBytesMax));
  YARD_ASSIGN(const auto wanted, read_complete_request(document));
  KeepAlive keep_alive(call);
  auto completed = complete_now(call, bucket, wanted, keep_alive);
  if (!completed)
    if (auto before = completed_before(call, bucket, wanted)) completed = *std::move(before);
  if (!completed) return keep_alive.finish(std::move(completed).error());
  XmlWriter xml("CompleteMultipartUploadResult");
  xml.text("Location", location_of(call, call.route.key)).text("Bucket", call.route.bucket);
  xml.text("Key", call.route.key).text("ETag", quoted(completed->etag));
  xml.text(checksum_element(completed->checksum.algorithm), completed->checksum.base64);
  xml.text("ChecksumType", to_string(completed->checksum.type));
  return keep_alive.finish(std::move(xml));
}

S3Status abort_upload(Call& call) {
  YARD_TRY(call.bucket());
  YARD_ASSIGN(const UploadInfo upload, upload_of(call));
  YARD_TRY(call.services.uploads.abort(upload));
  return send_empty(call, 204);
}

S3Status list_parts(Call& call) {
  YARD_TRY(call.bucket());
  YARD_ASSIGN(const UploadInfo upload, upload_of(call));
  YARD_ASSIGN(const uint32_t count_max, count_parameter(call.route, "max-parts", 1000));
  YARD_ASSIGN(const uint32_t after,
              count_parameter(call.route, "part-number-marker", kPartCountMax, 0));
  YARD_ASSIGN(const auto parts, call.services.uploads.parts(upload));
  XmlWriter xml("ListPartsResult");
  xml.text("Bucket", upload.bucket).text("Key", upload.key).text("UploadId", upload.id);
  write_principal(xml, "Initiator");
  write_principal(xml, "Owner");
  xml.text("StorageClass", "STANDARD").number("PartNumberMarker", after);
  if (upload.names_algorithm)
    xml.text("ChecksumAlgorithm", to_string(upload.algorithm))
        .text("ChecksumType", to_string(upload.checksum_type));
  uint32_t count = 0;
  uint32_t last = after;
  bool is_truncated = false;
  for (const PartInfo& part : parts) {
    if (part.number <= after) continue;
    is_truncated = count == count_max;
    if (is_truncated) break;
    xml.open("Part").number("PartNumber", part.number);
    xml.text("LastModified", format_time(part.modified)).text("ETag", quoted(part.etag));
    xml.number("Size", part.size_bytes);
    xml.text(checksum_element(upload.algorithm), base64_encode(bytes_of(part.digest))).close();
    last = part.number;
    ++count;
  }
  if (is_truncated) xml.number("NextPartNumberMarker", last);
  xml.number("MaxParts", count_max).flag("IsTruncated", is_truncated);
  return send_xml(call, std::move(xml));
}

}  // namespace yard::gateway
