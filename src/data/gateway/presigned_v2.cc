#include "gateway/presigned_v2.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <vector>

#include "net/encoding.h"
#include "net/uri.h"

namespace yard::gateway {
namespace {

// "Amazon Simple Storage Service Developer Guide", signing and authenticating REST requests: those
// that are part of the resource. Sorted, as they are signed.
constexpr std::string_view kSignedParameters[] = {"accelerate",
                                                  "acl",
                                                  "analytics",
                                                  "cors",
                                                  "delete",
                                                  "inventory",
                                                  "lifecycle",
                                                  "location",
                                                  "logging",
                                                  "metrics",
                                                  "notification",
                                                  "object-lock",
                                                  "partNumber",
                                                  "policy",
                                                  "replication",
                                                  "requestPayment",
                                                  "response-cache-control",
                                                  "response-content-disposition",
                                                  "response-content-encoding",
                                                  "response-content-language",
                                                  "response-content-type",
                                                  "response-expires",
                                                  "restore",
                                                  "select",
                                                  "select-type",
                                                  "storageClass",
                                                  "tagging",
                                                  "torrent",
                                                  "uploadId",
                                                  "uploads",
                                                  "versionId",
                                                  "versioning",
                                                  "versions",
                                                  "website"};

std::string lower_case(std::string_view text) {
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(),
                         [](char c) { return c >= 'A' && c <= 'Z' ? char(c + 32) : c; });
  return lower;
}

std::string_view value_of(const std::vector<QueryPair>& query, std::string_view name) {
  const auto found = std::ranges::find(query, name, &QueryPair::name);
  return found == query.end() ? std::string_view() : std::string_view(found->value);
}

// A header that a URL may carry among its parameters.
std::string header_or_parameter(const SignableRequest& request, const std::vector<QueryPair>& query,
                                std::string_view name) {
  const std::string_view parameter = value_of(query, name);
  return std::string(parameter.empty() ? request.headers.value_or(name, "") : parameter);
}

std::string canonical_headers(const SignableRequest& request, const std::vector<QueryPair>& query) {
  std::map<std::string, std::string> found;
  for (const auto& [name, value] : request.headers) {
    std::string lower = lower_case(name);
    if (lower.starts_with("x-amz-")) found[lower] = request.headers.joined(name);
  }
  for (const auto& [name, value] : query)
    if (std::string lower = lower_case(name); lower.starts_with("x-amz-")) found[lower] = value;
  std::string text;
  for (const auto& [name, value] : found) text += name + ":" + value + "\n";
  return text;
}

std::string canonical_resource(const SignableRequest& request, const std::vector<QueryPair>& query,
                               std::string_view bucket_of_host) {
  std::string text(bucket_of_host);
  text += request.raw_path;
  char separator = '?';
  for (const std::string_view name : kSignedParameters) {
    const auto found = std::ranges::find(query, name, &QueryPair::name);
    if (found == query.end()) continue;
    text += separator + std::string(name);
    if (!found->value.empty()) text += "=" + found->value;
    separator = '&';
  }
  return text;
}

}  // namespace

std::string hmac_sha1_base64(std::string_view key, std::string_view text) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  const auto* bytes = reinterpret_cast<const unsigned char*>(text.data());
  YARD_CHECK(HMAC(EVP_sha1(), key.data(), int(key.size()), bytes, text.size(), digest, &size) !=
             nullptr);
  return base64_encode(std::as_bytes(std::span(digest, size)));
}

bool equals_in_constant_time(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

VerifiedRequest unsigned_request() {
  return {.access_key = "",
          .region = "",
          .service = "s3",
          .is_presigned = false,
          .payload = PayloadKind::kUnsigned,
          .payload_sha256 = "",
          .chunk_signer = ChunkSigner(SigningKey::derive("", "", "", ""), "", "", "")};
}

bool is_presigned_v2(std::string_view raw_query) {
  return ("&" + std::string(raw_query)).find("&AWSAccessKeyId=") != std::string::npos;
}

std::string presigned_v2_key(std::string_view raw_query) {
  const auto query = parse_query(raw_query);
  return query ? std::string(value_of(*query, "AWSAccessKeyId")) : "";
}

std::variant<VerifiedRequest, AuthError> verify_presigned_v2(const SignableRequest& request,
                                                             std::string_view bucket_of_host,
                                                             const Credentials& credentials,
                                                             Clock::Wall now) {
  const auto query = parse_query(request.raw_query);
  if (!query) return AuthError{"InvalidURI", 400, "Couldn't parse the specified URI.", "", ""};
  if (request.headers.contains("authorization"))
    return AuthError{"InvalidArgument", 400, "Only one auth mechanism allowed", "", ""};
  if (value_of(*query, "AWSAccessKeyId") != credentials.access_key)
    return AuthError{"InvalidAccessKeyId", 403,
                     "The AWS Access Key Id you provided does not exist in our records.", "", ""};
  const std::string_view expires = value_of(*query, "Expires");
  int64_t seconds = 0;
  const auto [end, failed] =
      std::from_chars(expires.data(), expires.data() + expires.size(), seconds);
  if (failed != std::errc{} || end != expires.data() + expires.size())
    return AuthError{"AccessDenied", 403, "Invalid date (should be seconds since epoch)", "", ""};
  if (to_unix_seconds(now) > double(seconds))
    return AuthError{"AccessDenied", 403, "Request has expired", "", ""};
  const std::string text = std::string(request.method) + "\n" +
                           header_or_parameter(request, *query, "content-md5") + "\n" +
                           header_or_parameter(request, *query, "content-type") + "\n" +
                           std::string(expires) + "\n" + canonical_headers(request, *query) +
                           canonical_resource(request, *query, bucket_of_host);
  if (!equals_in_constant_time(hmac_sha1_base64(credentials.secret_key, text),
                               value_of(*query, "Signature")))
    return AuthError{"SignatureDoesNotMatch", 403,
                     "The request signature we calculated does not match the signature you "
                     "provided. Check your key and signing method.",
                     "", text};
  VerifiedRequest verified = unsigned_request();
  verified.access_key = credentials.access_key;
  verified.is_presigned = true;
  return verified;
}

}  // namespace yard::gateway
