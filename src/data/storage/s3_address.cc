#include "storage/s3_address.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "net/uri.h"

namespace yard::storage {
namespace {

constexpr std::string_view kScheme = "s3://";

bool is_bucket_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
         c == '-' || c == '_';
}

// As S3 has them, and as servers that are less strict do: the name of a host and of a folder.
bool is_bucket_name(std::string_view name) {
  return !name.empty() && name.size() <= 255 && name != "." && name != ".." &&
         std::ranges::all_of(name, is_bucket_character);
}

bool is_host_character(char c) {
  return is_bucket_character(c) || c == ':' || c == '[' || c == ']';
}

// What stands behind the host's ':'; true where there is none.
bool has_good_port(std::string_view authority) {
  const size_t colon = authority.rfind(':');
  if (colon == authority.npos || authority.find(']', colon) != authority.npos) return true;
  const std::string_view digits = authority.substr(colon + 1);
  uint16_t port = 0;
  const auto [end, failed] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  return failed == std::errc() && end == digits.data() + digits.size() && port > 0;
}

}  // namespace

bool is_s3_url(std::string_view url) {
  return url.starts_with(kScheme);
}

Result<S3Url> parse_s3_url(std::string_view url) {
  if (!is_s3_url(url))
    return Error{Code::kInvalidArgument, fmt::format("'{}' is no s3://bucket/key", url)};
  const std::string_view rest = url.substr(kScheme.size());
  const size_t slash = std::min(rest.find('/'), rest.size());
  const std::string_view bucket = rest.substr(0, slash);
  const std::string_view key = rest.substr(std::min(slash + 1, rest.size()));
  if (bucket.empty() && rest.empty()) return S3Url{};
  if (!is_bucket_name(bucket))
    return Error{Code::kInvalidArgument, fmt::format("'{}': '{}' is no bucket name", url, bucket)};
  return S3Url{std::string(bucket), std::string(key)};
}

Result<S3Endpoint> parse_s3_endpoint(std::string_view url, std::string_view region) {
  if (url.empty()) {
    const std::string_view domain =
        region.starts_with("cn-") ? "amazonaws.com.cn" : "amazonaws.com";
    return S3Endpoint{"https", fmt::format("s3.{}.{}", region, domain), true};
  }
  const auto bad = [&](std::string_view why) {
    return Error{Code::kInvalidArgument, fmt::format("endpoint '{}': {}", url, why)};
  };
  const size_t scheme_end = url.find("://");
  const std::string scheme(url.substr(0, std::min(scheme_end, url.size())));
  if (scheme_end == url.npos || (scheme != "http" && scheme != "https"))
    return bad("an endpoint is http://host:port or https://host:port");
  std::string_view authority = url.substr(scheme_end + 3);
  while (authority.ends_with('/')) authority.remove_suffix(1);
  if (authority.empty() || !std::ranges::all_of(authority, is_host_character))
    return bad("only a host and a port may follow the scheme");
  if (!has_good_port(authority)) return bad("a port is a number from 1 to 65535");
  // As curl connects, and as the Host header must then be signed.
  const std::string_view own_port = scheme == "http" ? ":80" : ":443";
  if (authority.ends_with(own_port)) authority.remove_suffix(own_port.size());
  const bool is_aws =
      authority.ends_with(".amazonaws.com") || authority.ends_with(".amazonaws.com.cn");
  return S3Endpoint{scheme, std::string(authority), is_aws};
}

std::string S3Address::url(std::string_view raw_query) const {
  return fmt::format("{}://{}{}{}{}", scheme, host, raw_path, raw_query.empty() ? "" : "?",
                     raw_query);
}

S3Address s3_address(const S3Endpoint& endpoint, S3AddressStyle style, std::string_view bucket,
                     std::string_view key) {
  if (style == S3AddressStyle::kAuto)
    // The certificate of *.s3.amazonaws.com covers one more name, without dots.
    style = endpoint.is_aws && bucket.find('.') == bucket.npos ? S3AddressStyle::kVirtualHost
                                                               : S3AddressStyle::kPath;
  const std::string path = "/" + percent_encode_path(key);
  if (bucket.empty()) return {endpoint.scheme, endpoint.authority, "/"};
  if (style == S3AddressStyle::kVirtualHost)
    return {endpoint.scheme, fmt::format("{}.{}", bucket, endpoint.authority), path};
  return {endpoint.scheme, endpoint.authority,
          fmt::format("/{}{}", percent_encode(bucket), key.empty() ? "" : path)};
}

}  // namespace yard::storage
