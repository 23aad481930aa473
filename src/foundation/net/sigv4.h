// AWS Signature Version 4, both sides: signing requests (headers, or a presigned URL) and verifying
// them.
//
// Paths: service "s3" signs the path as it is, percent-encoded once; every other service signs its
// normalised path encoded a second time. What is in the body is named by the request
// (x-amz-content-sha256), so nothing here reads it: the caller compares the body with
// VerifiedRequest::payload_sha256, or decodes it with AwsChunkedDecoder.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "base/clock.h"
#include "net/http_message.h"
#include "net/signing_key.h"

namespace yard {

inline constexpr std::string_view kUnsignedPayload = "UNSIGNED-PAYLOAD";
inline constexpr std::string_view kStreamingSignedPayload = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD";
inline constexpr std::string_view kStreamingSignedPayloadTrailer =
    "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER";
inline constexpr std::string_view kStreamingUnsignedPayloadTrailer =
    "STREAMING-UNSIGNED-PAYLOAD-TRAILER";
inline constexpr std::string_view kEmptyPayloadSha256 =
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

inline constexpr std::chrono::seconds kClockSkewMax = std::chrono::minutes(15);
inline constexpr std::chrono::seconds kPresignedExpiresMax = std::chrono::days(7);

struct Credentials {
  std::string access_key;
  std::string secret_key;
  std::string session_token;  // empty: long-lived credentials
};

// The parts of a request that a signature covers, as they stand on the wire. Views: they outlive
// the call only.
struct SignableRequest {
  std::string_view method;
  std::string_view raw_path;   // percent-encoded, begins with '/'
  std::string_view raw_query;  // percent-encoded, without '?'
  const Headers& headers;
};

// Signs for one service in one region. Thread-safe; keeps `clock`, which outlives it.
class Signer {
 public:
  Signer(std::string region, std::string service, const Clock& clock)
      : region_(std::move(region)), service_(std::move(service)), clock_(clock) {}

  struct Signed {
    Headers headers;           // to be added to the request
    ChunkSigner chunk_signer;  // for a body of kStreamingSigned...
  };
  // payload: the hexadecimal SHA-256 of the body, or one of the constants above. Signs every header
  // that proxies leave alone. Contract: the request has a host header and none of those that are
  // added here (authorization, x-amz-date, x-amz-content-sha256, x-amz-security-token).
  Signed sign(const SignableRequest& request, const Credentials& credentials,
              std::string_view payload) const;

  // The whole raw query of a presigned URL: the request's own and X-Amz-... behind it. Whoever
  // fetches it sends the request's headers with the same values. Contract: a host header, `expires`
  // from 1 s to kPresignedExpiresMax.
  std::string presign(const SignableRequest& request, const Credentials& credentials,
                      std::chrono::seconds expires) const;

 private:
  const std::string region_;
  const std::string service_;
  const Clock& clock_;
  mutable SigningKeyCache keys_;
};

enum class PayloadKind {
  kSha256,                    // payload_sha256 says which body was signed
  kUnsigned,                  // any body
  kStreamingSigned,           // aws-chunked, each chunk signed
  kStreamingSignedTrailer,    // likewise, and signed trailers
  kStreamingUnsignedTrailer,  // aws-chunked with trailers, nothing signed
};

// What a client of an AWS API is told when its request is not accepted.
struct AuthError {
  std::string_view code;  // AWS's name: "SignatureDoesNotMatch"
  int http_status;
  std::string message;
  // What we computed, for the client to compare; only with SignatureDoesNotMatch.
  std::string canonical_request;
  std::string string_to_sign;
};

struct VerifiedRequest {
  std::string access_key;
  std::string region;
  std::string service;
  bool is_presigned = false;
  PayloadKind payload = PayloadKind::kSha256;
  std::string payload_sha256;  // 64 lower-case digits; only with kSha256
  ChunkSigner chunk_signer;    // for AwsChunkedDecoder
};

struct VerifierOptions {
  std::string region;   // the only one that is accepted; empty: any
  std::string service;  // likewise
};

// Says who signed a request, or why it is refused. Thread-safe. Keeps `clock`, which outlives it.
//
// Refusals by AuthError::code: MissingAuthenticationToken (nothing signed), InvalidRequest (another
// algorithm; no x-amz-content-sha256 on S3), InvalidArgument (two ways at once; a payload hash that
// is none), AuthorizationHeaderMalformed, AuthorizationQueryParametersError, InvalidURI,
// AccessDenied (no date; expired; x-amz-* headers that are not signed), RequestTimeTooSkewed,
// InvalidAccessKeyId, InvalidToken, SignatureDoesNotMatch.
//
// A path or a query that is not encoded as AWS would have it is accepted in two readings each:
// encoded anew, and as it was sent. botocore signs both as sent, the AWS CRT the path only.
class SignatureVerifier {
 public:
  // The credentials of an access key; nothing when there are none. Called from verify().
  using Lookup = std::function<std::optional<Credentials>(std::string_view access_key)>;

  SignatureVerifier(VerifierOptions options, Lookup lookup, const Clock& clock)
      : options_(std::move(options)), lookup_(std::move(lookup)), clock_(clock) {}

  // body_sha256: of the body, for services other than S3, whose clients often sign it without
  // saying it; unused where the request names its payload.
  std::variant<VerifiedRequest, AuthError> verify(
      const SignableRequest& request, std::string_view body_sha256 = kEmptyPayloadSha256) const;

 private:
  const VerifierOptions options_;
  const Lookup lookup_;
  const Clock& clock_;
  mutable SigningKeyCache keys_;
};

}  // namespace yard
