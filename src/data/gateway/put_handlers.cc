// PutObject, DeleteObject and DeleteObjects.
#include "base/log.h"
#include "gateway/handlers_internal.h"
#include "gateway/key_path.h"
#include "net/encoding.h"

namespace yard::gateway {
namespace {

S3Result<bool> remove_and_tell(Call& call, Bucket& bucket, const std::string& key,
                               const Precondition& precondition) {
  YARD_ASSIGN(const bool was_there, bucket.remove(key, precondition));
  if (was_there) tell(call, "ObjectRemoved:Delete", key, 0, "");
  return was_there;
}

S3Status delete_one(Call& call, Bucket& bucket, const DeleteRequest::Object& object) {
  YARD_TRY(check_key(object.key));
  if (!object.version_id.empty() && object.version_id != "null") return s3::kNoSuchVersion;
  YARD_TRY(remove_and_tell(call, bucket, object.key, [&](const ObjectFile* existing) -> S3Status {
    if (!object.etag || existing == nullptr || *object.etag == "*" ||
        *object.etag == existing->meta.etag)
      return Ok{};
    return s3::kPreconditionFailed;
  }));
  return Ok{};
}

}  // namespace

Precondition write_conditions(const Call& call) {
  return [&call](const ObjectFile* existing) {
    if (existing == nullptr) return check_write_conditions(call.headers(), nullptr);
    const ObjectVersion version{existing->meta.etag, existing->modified()};
    return check_write_conditions(call.headers(), &version);
  };
}

// Refuses at once what would be refused at the end of a long body.
S3Status check_early(const Call& call, const Bucket& bucket) {
  if (!call.header("if-match") && !call.header("if-none-match")) return Ok{};
  const auto existing = bucket.open(call.route.key);
  return write_conditions(call)(existing ? &*existing : nullptr);
}

S3Status check_body_size(const BodyReader& body) {
  if (body.size_bytes() <= kPutBytesMax) return Ok{};
  return S3Error(s3::kEntityTooLarge)
      .with("ProposedSize", std::to_string(body.size_bytes()))
      .with("MaxSizeAllowed", std::to_string(kPutBytesMax));
}

S3Status put_object(Call& call) {
  YARD_TRY(check_storage_headers(call.headers()));
  YARD_ASSIGN(Bucket bucket, call.bucket());
  YARD_ASSIGN(BodyReader body, BodyReader::open(call.request, call.verified));
  YARD_ASSIGN(ObjectMeta meta, meta_of_request(call.headers()));
  YARD_TRY(check_body_size(body));
  YARD_TRY(check_early(call, bucket));
  YARD_ASSIGN(TempFile file, call.services.root->make_temp_file());
  const auto algorithm = body.claimed_algorithm().value_or(ChecksumAlgorithm::kCrc64Nvme);
  YARD_ASSIGN(const BodyDigests digests, receive(call, body, file, algorithm));
  meta.etag = hex_encode(bytes_of(digests.md5));
  meta.checksum =
      ObjectChecksum{algorithm, ChecksumType::kFullObject, base64_encode(bytes_of(digests.wanted))};
  YARD_TRY(bucket.store(std::move(file), meta, call.route.key, write_conditions(call)));
  tell(call, "ObjectCreated:Put", call.route.key, digests.size_bytes, meta.etag);
  call.response.headers().set("ETag", quoted(meta.etag));
  set_checksum_headers(call.response.headers(), *meta.checksum);
  return send_empty(call, 200);
}

S3Status delete_object(Call& call) {
  const std::string_view version_id = call.route.parameter("versionId").value_or("");
  if (!version_id.empty() && version_id != "null") return s3::kNoSuchVersion;
  YARD_ASSIGN(Bucket bucket, call.bucket());
  YARD_TRY(remove_and_tell(call, bucket, call.route.key, write_conditions(call)));
  return send_empty(call, 204);
}

S3Status delete_objects(Call& call) {
  YARD_ASSIGN(Bucket bucket, call.bucket());
  YARD_ASSIGN(const std::string document, read_document(call));
  YARD_ASSIGN(const DeleteRequest request, read_delete_request(document));
  XmlWriter xml("DeleteResult");
  for (const DeleteRequest::Object& object : request.objects) {
    const S3Status deleted = delete_one(call, bucket, object);
    if (deleted) {
      if (!request.is_quiet) xml.open("Deleted").text("Key", object.key).close();
      continue;
    }
    xml.open("Error").text("Key", object.key).text("Code", deleted.error().code);
    xml.text("Message", deleted.error().message).close();
  }
  return send_xml(call, std::move(xml));
}

}  // namespace yard::gateway
