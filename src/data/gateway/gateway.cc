#include "gateway/gateway.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>

#include "base/ids.h"
#include "base/log.h"
#include "gateway/form.h"
#include "gateway/handlers_internal.h"
#include "gateway/presigned_v2.h"

namespace yard::gateway {
namespace {

// Unique as long as the process lives, and not to be guessed from another process's.
std::string next_request_id() {
  static const std::string start = random_name(6);
  static std::atomic<uint64_t> count = 0;
  std::string id = fmt::format("{}{:010X}", start, count.fetch_add(1, std::memory_order_relaxed));
  std::ranges::transform(id, id.begin(),
                         [](char c) { return c >= 'a' && c <= 'z' ? char(c - 32) : c; });
  return id;
}

Handler handler_of(Operation operation) {
  switch (operation) {
    case Operation::kListBuckets:
      return list_buckets;
    case Operation::kCreateBucket:
      return create_bucket;
    case Operation::kHeadBucket:
      return head_bucket;
    case Operation::kDeleteBucket:
      return delete_bucket;
    case Operation::kGetBucketLocation:
      return get_bucket_location;
    case Operation::kGetBucketSetting:
      return get_bucket_setting;
    case Operation::kDeleteBucketSetting:
      return delete_bucket_setting;
    case Operation::kGetNotification:
      return get_notification;
    case Operation::kPutNotification:
      return put_notification;
    case Operation::kListObjects:
      return list_objects;
    case Operation::kListObjectsV2:
      return list_objects_v2;
    case Operation::kListVersions:
      return list_versions;
    case Operation::kPostObject:
      return post_object;
    case Operation::kListUploads:
      return list_uploads;
    case Operation::kDeleteObjects:
      return delete_objects;
    case Operation::kGetObject:
      return get_object;
    case Operation::kHeadObject:
      return head_object;
    case Operation::kGetObjectSetting:
      return get_object_setting;
    case Operation::kGetObjectAttributes:
      return get_object_attributes;
    case Operation::kPutObject:
      return put_object;
    case Operation::kCopyObject:
      return copy_object;
    case Operation::kDeleteObject:
      return delete_object;
    case Operation::kCreateUpload:
      return create_upload;
    case Operation::kUploadPart:
      return upload_part;
    case Operation::kUploadPartCopy:
      return upload_part_copy;
    case Operation::kListParts:
      return list_parts;
    case Operation::kCompleteUpload:
      return complete_upload;
    case Operation::kAbortUpload:
      return abort_upload;
  }
  YARD_UNREACHABLE();
}

S3Error error_of(const AuthError& refused) {
  // S3 has no anonymous access here; its clients know that by this name.
  if (refused.code == "MissingAuthenticationToken") return s3::kAccessDenied;
  S3Error error(S3ErrorKind{refused.code, refused.http_status, ""}, refused.message);
  if (!refused.string_to_sign.empty())
    error = std::move(error).with("StringToSign", refused.string_to_sign);
  if (!refused.canonical_request.empty())
    error = std::move(error).with("CanonicalRequest", refused.canonical_request);
  return error;
}

S3Status check_owner(const Headers& headers, const std::string& account_id) {
  for (const char* name : {"x-amz-expected-bucket-owner", "x-amz-source-expected-bucket-owner"}) {
    const auto expected = headers.find(name);
    if (!expected) continue;
    const bool is_account = expected->size() == 12 && std::ranges::all_of(*expected, [](char c) {
                              return c >= '0' && c <= '9';
                            });
    if (!is_account)
      return S3Error(s3::kInvalidArgument,
                     fmt::format("The value of {} must be an account ID", name));
    if (!account_id.empty() && *expected != account_id) return s3::kAccessDenied;
  }
  return Ok{};
}

std::variant<VerifiedRequest, AuthError> verify(const Gateway::Services& services,
                                                const SignableRequest& request) {
  if (!is_presigned_v2(request.raw_query)) return services.verifier.verify(request);
  const auto bucket = bucket_of_host(request.headers.value_or("host", ""), services.options.domain);
  return verify_presigned_v2(request, bucket ? "/" + std::string(*bucket) : "",
                             services.credentials_of(presigned_v2_key(request.raw_query)),
                             services.clock.wall_now());
}

bool changes_anything(Operation operation) {
  switch (operation) {
    case Operation::kListBuckets:
    case Operation::kHeadBucket:
    case Operation::kGetBucketLocation:
    case Operation::kGetBucketSetting:
    case Operation::kGetNotification:
    case Operation::kListObjects:
    case Operation::kListObjectsV2:
    case Operation::kListVersions:
    case Operation::kListUploads:
    case Operation::kGetObject:
    case Operation::kHeadObject:
    case Operation::kGetObjectSetting:
    case Operation::kGetObjectAttributes:
    case Operation::kListParts:
      return false;
    case Operation::kCreateBucket:
    case Operation::kDeleteBucket:
    case Operation::kDeleteBucketSetting:
    case Operation::kPutNotification:
    case Operation::kPostObject:
    case Operation::kDeleteObjects:
    case Operation::kPutObject:
    case Operation::kCopyObject:
    case Operation::kDeleteObject:
    case Operation::kCreateUpload:
    case Operation::kUploadPart:
    case Operation::kUploadPartCopy:
    case Operation::kCompleteUpload:
    case Operation::kAbortUpload:
      return true;
  }
  YARD_UNREACHABLE();
}

S3Status dispatch(Gateway::Services& services, Request& request, ResponseWriter& response,
                  const VerifiedRequest& verified, const Route& found,
                  const std::string& request_id) {
  YARD_TRY(check_owner(request.headers(), services.options.account_id));
  Call call{services, request, response, verified, found, request_id};
  // Who sends a form is known only when its fields are read.
  if (found.operation != Operation::kPostObject) YARD_TRY(check_access(call, verified.access_key));
  return handler_of(found.operation)(call);
}

S3Result<Route> route_of(const Gateway::Services& services, const Request& request) {
  const Headers& headers = request.headers();
  return route({request.method(), headers.value_or("host", ""), request.path(), request.query(),
                headers.contains("x-amz-copy-source")},
               services.options.domain);
}

S3Status answer(Gateway::Services& services, Request& request, ResponseWriter& response,
                const std::string& request_id) {
  // Who sends a form is said in it.
  if (request.method() == "POST" && form_boundary(request.headers().value_or("content-type", ""))) {
    const auto found = route_of(services, request);
    if (found && found->operation == Operation::kPostObject)
      return dispatch(services, request, response, unsigned_request(), *found, request_id);
  }
  const auto verified =
      verify(services, {request.method(), request.path(), request.query(), request.headers()});
  if (const auto* refused = std::get_if<AuthError>(&verified)) return error_of(*refused);
  YARD_ASSIGN(const Route found, route_of(services, request));
  return dispatch(services, request, response, std::get<VerifiedRequest>(verified), found,
                  request_id);
}

std::string resource_of(const Request& request) {
  auto decoded = percent_decode(request.path());
  return decoded ? *std::move(decoded) : std::string(request.path());
}

void send_error(const Request& request, ResponseWriter& response, const S3Error& error,
                const std::string& request_id) {
  if (response.started()) {
    log_error("s3: {} {}: {} after the response began", request.method(), request.path(),
              error.message);
    response.abort();
    return;
  }
  if (error.http_status == 0) return;  // the HTTP server knows better
  if (error.http_status == 304) {
    (void)response.send(304);
    return;
  }
  response.headers().clear();
  response.headers().set("x-amz-request-id", request_id);
  response.headers().set("Content-Type", "application/xml");
  XmlWriter xml("Error", XmlWriter::Namespace::kNone);
  xml.text("Code", error.code).text("Message", error.message);
  for (const auto& [name, value] : error.elements) {
    xml.text(name, value);
    if (name == "ActualObjectSize") response.headers().set("Content-Range", "bytes */" + value);
  }
  xml.text("Resource", resource_of(request)).text("RequestId", request_id);
  (void)response.send(error.http_status, xml.take());
}

}  // namespace

Credentials Gateway::Services::credentials_of(std::string_view access_key) const {
  if (access_key != options.credentials.access_key && options.lookup)
    if (auto known = options.lookup(access_key)) return *std::move(known);
  return options.credentials;
}

S3Status check_access(const Call& call, std::string_view access_key) {
  const auto& authorize = call.services.options.authorize;
  if (!authorize) return Ok{};
  const bool may = authorize({.access_key = access_key,
                              .method = call.request.method(),
                              .raw_path = call.request.path(),
                              .peer_address = call.request.peer_address(),
                              .request_id = call.request_id,
                              .changes = changes_anything(call.route.operation)});
  if (!may) return s3::kAccessDenied;
  return Ok{};
}

Gateway::Gateway(std::unique_ptr<Services> services) : services_(std::move(services)) {}
Gateway::~Gateway() = default;

Result<std::unique_ptr<Gateway>> Gateway::open(GatewayOptions options, const Clock& clock) {
  YARD_CHECK(!options.credentials.access_key.empty() && !options.credentials.secret_key.empty());
  YARD_ASSIGN(std::unique_ptr<Root> root, Root::open(options.root));
  const auto lookup = [known = options.credentials, others = options.lookup](
                          std::string_view access_key) -> std::optional<Credentials> {
    if (access_key == known.access_key) return known;
    return others ? others(access_key) : std::nullopt;
  };
  const int settings_fd = root->settings().get();
  EventSink sink = options.event_sink;
  Root& root_of_uploads = *root;
  const size_t listing_bytes_max = options.listing_bytes_max;
  auto services = std::unique_ptr<Services>(
      new Services{.options = std::move(options),
                   .clock = clock,
                   .root = std::move(root),
                   .verifier = SignatureVerifier({.region = "", .service = "s3"}, lookup, clock),
                   .lister = Lister(clock, listing_bytes_max),
                   .uploads = Uploads(root_of_uploads),
                   .notifications = Notifications(settings_fd, std::move(sink))});
  return std::unique_ptr<Gateway>(new Gateway(std::move(services)));
}

void Gateway::handle(Request& request, ResponseWriter& response) {
  const std::string request_id = next_request_id();
  response.headers().set("x-amz-request-id", request_id);
  const S3Status done = answer(*services_, request, response, request_id);
  if (!done) send_error(request, response, done.error(), request_id);
}

}  // namespace yard::gateway
