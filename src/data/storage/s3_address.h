// Where an S3 object lies: s3:// URLs, endpoints, and the two ways of naming a bucket in a request.
// Pure functions.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace yard::storage {

struct S3Url {
  std::string bucket;  // empty for "s3://", all buckets
  std::string key;     // as it is written: nothing is decoded, an S3 key may hold any character
};
bool is_s3_url(std::string_view url);
// kInvalidArgument unless "s3://bucket/key", "s3://bucket" or "s3://", with a bucket name as S3 has
// them.
Result<S3Url> parse_s3_url(std::string_view url);

enum class S3AddressStyle {
  kAuto,         // kVirtualHost at AWS for names without a dot, else kPath
  kPath,         // http://host/bucket/key
  kVirtualHost,  // http://bucket.host/key
};

struct S3Endpoint {
  std::string scheme;     // "http" or "https"
  std::string authority;  // "host" or "host:port", without the scheme's own port
  bool is_aws = false;
};
// An empty `url` is AWS in that region. kInvalidArgument unless it is scheme://host[:port].
Result<S3Endpoint> parse_s3_endpoint(std::string_view url, std::string_view region);

// What goes into a request.
struct S3Address {
  std::string scheme;
  std::string host;      // the Host header, and what is connected to
  std::string raw_path;  // percent-encoded

  std::string url(std::string_view raw_query) const;
};
// An empty key is the bucket itself, an empty bucket the service.
S3Address s3_address(const S3Endpoint& endpoint, S3AddressStyle style, std::string_view bucket,
                     std::string_view key);

}  // namespace yard::storage
