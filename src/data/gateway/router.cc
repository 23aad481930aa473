#include "gateway/router.h"

#include <algorithm>

#include "gateway/key_path.h"
#include "net/http_message.h"
#include "storage/keys.h"

namespace yard::gateway {
namespace {

// Settings of buckets and objects that nothing here has; settings.h says what is answered.
constexpr std::string_view kBucketSettings[] = {"accelerate",
                                                "acl",
                                                "cors",
                                                "encryption",
                                                "lifecycle",
                                                "logging",
                                                "object-lock",
                                                "ownershipControls",
                                                "policy",
                                                "policyStatus",
                                                "publicAccessBlock",
                                                "replication",
                                                "requestPayment",
                                                "tagging",
                                                "versioning",
                                                "website"};
constexpr std::string_view kObjectSettings[] = {"acl", "legal-hold", "retention", "tagging"};

// Operations of S3 by their parameter that we do not have.
constexpr std::string_view kUnknown[] = {"analytics",
                                         "intelligent-tiering",
                                         "inventory",
                                         "metadataTable",
                                         "metadataConfiguration",
                                         "metrics",
                                         "renameObject",
                                         "restore",
                                         "select",
                                         "session",
                                         "torrent",
                                         "append",
                                         "abac"};

struct Place {
  std::string bucket;
  std::string key;
};

std::string_view without_port(std::string_view host) {
  const size_t colon = host.rfind(':');
  return colon == host.npos || host.ends_with(']') ? host : host.substr(0, colon);
}

S3Result<Place> place_of(const RoutableRequest& request, std::string_view domain) {
  std::string_view path = request.raw_path;
  if (!path.starts_with('/')) return s3::kInvalidUri;
  path.remove_prefix(1);
  std::string raw_bucket;
  if (const auto bucket = bucket_of_host(request.host, domain)) {
    raw_bucket = *bucket;
  } else {
    const size_t slash = path.find('/');
    raw_bucket = path.substr(0, slash);
    path.remove_prefix(slash == path.npos ? path.size() : slash + 1);
  }
  auto bucket = percent_decode(raw_bucket);
  auto key = percent_decode(path);
  if (!bucket || !key || !storage::is_utf8(*key)) return s3::kInvalidUri;
  if (key->size() > kKeyBytesMax)
    return S3Error(s3::kKeyTooLong)
        .with("Size", std::to_string(key->size()))
        .with("MaxSizeAllowed", std::to_string(kKeyBytesMax));
  return Place{*std::move(bucket), *std::move(key)};
}

template <size_t N>
std::optional<std::string_view> setting_in(const Route& route, const std::string_view (&names)[N]) {
  for (const std::string_view name : names)
    if (route.has(name)) return name;
  return std::nullopt;
}

S3Result<Operation> bucket_operation(std::string_view method, Route& route) {
  if (const auto setting = setting_in(route, kBucketSettings)) {
    route.setting = *setting;
    if (method == "GET") return Operation::kGetBucketSetting;
    if (method == "DELETE") return Operation::kDeleteBucketSetting;
    return s3::kNotImplemented;
  }
  if (method == "GET") {
    if (route.has("location")) return Operation::kGetBucketLocation;
    if (route.has("notification")) return Operation::kGetNotification;
    if (route.has("uploads")) return Operation::kListUploads;
    if (route.has("versions")) return Operation::kListVersions;
    if (route.has("attributes")) return s3::kNotImplemented;
    return route.parameter("list-type") == "2" ? Operation::kListObjectsV2
                                               : Operation::kListObjects;
  }
  if (method == "PUT")
    return route.has("notification") ? Operation::kPutNotification : Operation::kCreateBucket;
  if (method == "HEAD") return Operation::kHeadBucket;
  if (method == "DELETE") return Operation::kDeleteBucket;
  if (method != "POST") return s3::kMethodNotAllowed;
  if (route.has("delete")) return Operation::kDeleteObjects;
  return Operation::kPostObject;
}

S3Result<Operation> object_operation(std::string_view method, Route& route, bool has_copy_source) {
  if (const auto setting = setting_in(route, kObjectSettings)) {
    route.setting = *setting;
    if (method == "GET") return Operation::kGetObjectSetting;
    return s3::kNotImplemented;
  }
  const bool is_upload = route.has("uploadId");
  if (method == "GET" && route.has("attributes")) return Operation::kGetObjectAttributes;
  if (route.has("attributes") || route.has("versions")) return s3::kNotImplemented;
  if (method == "GET") return is_upload ? Operation::kListParts : Operation::kGetObject;
  if (method == "HEAD") return Operation::kHeadObject;
  if (method == "PUT") {
    if (is_upload || route.has("partNumber"))
      return has_copy_source ? Operation::kUploadPartCopy : Operation::kUploadPart;
    return has_copy_source ? Operation::kCopyObject : Operation::kPutObject;
  }
  if (method == "DELETE") return is_upload ? Operation::kAbortUpload : Operation::kDeleteObject;
  if (method != "POST") return s3::kMethodNotAllowed;
  if (route.has("uploads")) return Operation::kCreateUpload;
  if (is_upload) return Operation::kCompleteUpload;
  return s3::kNotImplemented;
}

}  // namespace

std::optional<std::string_view> bucket_of_host(std::string_view host, std::string_view domain) {
  host = without_port(host);
  if (domain.empty() || host.size() <= domain.size() + 1) return std::nullopt;
  const size_t dot = host.size() - domain.size() - 1;
  if (host[dot] != '.' || !equals_ignoring_case(host.substr(dot + 1), domain)) return std::nullopt;
  return host.substr(0, dot);
}

std::optional<std::string_view> Route::parameter(std::string_view name) const {
  const auto found = std::ranges::find(query, name, &QueryPair::name);
  if (found == query.end()) return std::nullopt;
  return std::string_view(found->value);
}

S3Result<Route> route(const RoutableRequest& request, std::string_view domain) {
  Route route;
  YARD_ASSIGN(Place place, place_of(request, domain));
  route.bucket = std::move(place.bucket);
  route.key = std::move(place.key);
  auto query = parse_query(request.raw_query);
  if (!query) return s3::kInvalidUri;
  route.query = *std::move(query);
  if (setting_in(route, kUnknown)) return s3::kNotImplemented;
  if (route.bucket.empty()) {
    if (request.method != "GET" || !route.key.empty()) return s3::kMethodNotAllowed;
    route.operation = Operation::kListBuckets;
    return route;
  }
  YARD_ASSIGN(route.operation,
              route.key.empty() ? bucket_operation(request.method, route)
                                : object_operation(request.method, route, request.has_copy_source));
  return route;
}

}  // namespace yard::gateway
