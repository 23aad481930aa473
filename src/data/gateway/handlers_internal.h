// What the handlers of S3's operations share.
#pragma once

#include <optional>
#include <semaphore>
#include <string>
#include <string_view>

#include "gateway/body.h"
#include "gateway/conditions.h"
#include "gateway/gateway.h"
#include "gateway/lister.h"
#include "gateway/notifications.h"
#include "gateway/root.h"
#include "gateway/router.h"
#include "gateway/uploads.h"
#include "gateway/xml.h"
#include "net/sigv4.h"

namespace yard::gateway {

// Forms say only in their bodies who sends them. So few may be read at once before that is known,
// so that clients without a key hold few workers, however slow they are.
inline constexpr int kUnknownFormsMax = 8;

struct Gateway::Services {
  GatewayOptions options;
  const Clock& clock;
  std::unique_ptr<Root> root;
  SignatureVerifier verifier;
  Lister lister;
  Uploads uploads;
  Notifications notifications;
  Md5Group md5_group{};

  // Of the key, or of the first user, with whose nothing fits then.
  Credentials credentials_of(std::string_view access_key) const;

  std::counting_semaphore<kUnknownFormsMax> unknown_forms{kUnknownFormsMax};
};

// One request on its way. Lives as long as its handling.
struct Call {
  Gateway::Services& services;
  Request& request;
  ResponseWriter& response;
  const VerifiedRequest& verified;
  const Route& route;
  const std::string& request_id;

  const Headers& headers() const { return request.headers(); }
  std::optional<std::string_view> header(std::string_view name) const {
    return request.headers().find(name);
  }
  S3Result<Bucket> bucket() const { return services.root->bucket(route.bucket); }
};

// A handler answers, or returns what its client is told.
using Handler = S3Status (*)(Call&);

// AccessDenied where GatewayOptions::authorize says no.
S3Status check_access(const Call& call, std::string_view access_key);

S3Status list_buckets(Call& call);
S3Status create_bucket(Call& call);
S3Status head_bucket(Call& call);
S3Status delete_bucket(Call& call);
S3Status get_bucket_location(Call& call);
S3Status get_bucket_setting(Call& call);
S3Status delete_bucket_setting(Call& call);
S3Status get_object_setting(Call& call);
S3Status get_notification(Call& call);
S3Status put_notification(Call& call);
S3Status list_objects(Call& call);
S3Status list_objects_v2(Call& call);
S3Status list_versions(Call& call);
S3Status get_object(Call& call);
S3Status head_object(Call& call);
S3Status get_object_attributes(Call& call);
S3Status put_object(Call& call);
S3Status post_object(Call& call);
S3Status delete_object(Call& call);
S3Status delete_objects(Call& call);
S3Status copy_object(Call& call);
S3Status create_upload(Call& call);
S3Status upload_part(Call& call);
S3Status upload_part_copy(Call& call);
S3Status complete_upload(Call& call);
S3Status abort_upload(Call& call);
S3Status list_parts(Call& call);
S3Status list_uploads(Call& call);

// A document, or nothing, with status 200 or 204. A client that went away is no failure of ours.
S3Status send_xml(Call& call, XmlWriter xml);
S3Status send_empty(Call& call, int status);

std::string quoted(std::string_view etag);
// "2026-11-30T05:16:27.000Z".
std::string format_time(std::chrono::system_clock::time_point time);

// The whole document in the body.
S3Result<std::string> read_document(Call& call);

// Sets the headers that tell of an object, but for those of its length.
enum class WithChecksum { kNo, kYes };
void set_object_headers(Headers& headers, const ObjectFile& object, WithChecksum with_checksum);

// The metadata in a request's headers: content-type, x-amz-meta-..., no ETag. MetadataTooLarge.
S3Result<ObjectMeta> meta_of_request(const Headers& headers);
// Refuses what would have to be stored otherwise than it is asked: another storage class, customer
// keys, tags, grants.
S3Status check_storage_headers(const Headers& headers);

// If-Match and If-None-Match of the request. The call outlives it.
Precondition write_conditions(const Call& call);
// Refuses at once what would be refused at the end of a long body.
S3Status check_early(const Call& call, const Bucket& bucket);

// The largest body that one request may carry is S3's: EntityTooLarge.
inline constexpr uint64_t kPutBytesMax = uint64_t{5} << 30;
S3Status check_body_size(const BodyReader& body);
// The object that the request names, of any version that is its only one. NoSuchKey, NoSuchVersion.
S3Result<ObjectFile> open_object(Call& call);

// The object's URL, in path style.
std::string location_of(const Call& call, std::string_view key);

// "ChecksumCRC32", as S3's documents name it.
std::string checksum_element(ChecksumAlgorithm algorithm);

// Receives a body of such a size into a TempFile or PartFile, and what was found.
template <typename File>
S3Result<BodyDigests> receive(const Call& call, BodyReader& body, File& file,
                              ChecksumAlgorithm algorithm) {
  constexpr uint64_t kWorthReserving = 1 << 20;
  if (body.size_bytes() >= kWorthReserving) YARD_TRY(file.reserve(body.size_bytes()));
  return body.read(algorithm, &call.services.md5_group,
                   [&](std::span<const std::byte> bytes) { return file.write(bytes); });
}

// A query parameter that counts, at most `count_max`, which is its default. InvalidArgument.
S3Result<uint32_t> count_parameter(const Route& route, std::string_view name, uint32_t count_max);
S3Result<uint32_t> count_parameter(const Route& route, std::string_view name, uint32_t count_max,
                                   uint32_t otherwise);

// The same of a text from elsewhere; `name` is for the message.
S3Result<uint32_t> count_value(std::string_view name, std::optional<std::string_view> text,
                               uint32_t count_max, uint32_t otherwise);

// Text as the client asked for it (encoding-type): as it is, or percent-encoded, since XML 1.0
// cannot hold every key.
class KeyText {
 public:
  static S3Result<KeyText> of(const Route& route);  // InvalidArgument
  bool is_encoded() const { return is_encoded_; }
  std::string operator()(std::string_view text) const {
    return is_encoded_ ? percent_encode_path(text) : std::string(text);
  }

 private:
  explicit KeyText(bool is_encoded) : is_encoded_(is_encoded) {}
  bool is_encoded_;
};

// The only user there is, as Owner or Initiator.
void write_principal(XmlWriter& xml, std::string_view element);

// The multipart upload that the request names: NoSuchUpload; and its part.
S3Result<UploadInfo> upload_of(const Call& call);
S3Result<uint32_t> part_number_of(const Route& route);

// KeyTooLongError, InvalidURI: for keys that come in documents and headers.
S3Status check_key(std::string_view key);

// Tells whoever asked for it; see notifications.h.
void tell(Call& call, std::string event, std::string key, uint64_t size_bytes, std::string etag);

// Headers of a response that tell a checksum of what was stored.
void set_checksum_headers(Headers& headers, const ObjectChecksum& checksum);

}  // namespace yard::gateway
