// Which S3 operation a request is. A pure function.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gateway/s3_error.h"
#include "net/uri.h"

namespace yard::gateway {

enum class Operation {
  kListBuckets,
  kCreateBucket,
  kHeadBucket,
  kDeleteBucket,
  kGetBucketLocation,
  kGetBucketSetting,     // one that no bucket here has: what S3 says of a bucket without it
  kDeleteBucketSetting,  // likewise
  kGetNotification,
  kPutNotification,
  kListObjects,
  kListObjectsV2,
  kListVersions,
  kPostObject,
  kListUploads,
  kDeleteObjects,
  kGetObject,
  kHeadObject,
  kGetObjectSetting,
  kGetObjectAttributes,
  kPutObject,
  kCopyObject,
  kDeleteObject,
  kCreateUpload,
  kUploadPart,
  kUploadPartCopy,
  kListParts,
  kCompleteUpload,
  kAbortUpload,
};

// What a router looks at. Views outlive the call only.
struct RoutableRequest {
  std::string_view method;
  std::string_view host;       // the Host header
  std::string_view raw_path;   // as sent
  std::string_view raw_query;  // as sent
  bool has_copy_source = false;
};

struct Route {
  Operation operation = Operation::kListBuckets;
  std::string bucket;  // empty for kListBuckets
  std::string key;     // empty for operations on buckets
  std::vector<QueryPair> query;
  std::string_view setting;  // of kGet...Setting: "policy"

  // The value of a query parameter; nothing without it.
  std::optional<std::string_view> parameter(std::string_view name) const;
  bool has(std::string_view name) const { return parameter(name).has_value(); }
};

// The bucket named by a host BUCKET.domain; nothing for a host that names none.
std::optional<std::string_view> bucket_of_host(std::string_view host, std::string_view domain);

// domain: hosts BUCKET.domain are buckets; empty: none. Errors: InvalidURI, KeyTooLongError,
// MethodNotAllowed, NotImplemented for what S3 knows and we do not.
S3Result<Route> route(const RoutableRequest& request, std::string_view domain);

}  // namespace yard::gateway
