#include <openssl/crypto.h>

#include <algorithm>
#include <charconv>
#include <vector>

#include "net/encoding.h"
#include "net/sigv4.h"
#include "net/sigv4_internal.h"
#include "net/uri.h"

namespace yard {

using namespace sigv4_internal;

namespace {

using Failure = std::optional<AuthError>;  // nothing: go on

constexpr size_t kSignedHeaderCountMax = 128;
constexpr std::string_view kQueryParametersWanted =
    "query-string authentication requires X-Amz-Algorithm, X-Amz-Credential, X-Amz-Signature, "
    "X-Amz-Date, X-Amz-SignedHeaders and X-Amz-Expires, each once";

// What a request says about its own signature. Views into the request or the parsed query.
struct Claim {
  bool is_presigned = false;
  std::string_view access_key, date, region, service;
  std::string_view signed_headers;
  std::vector<std::string_view> signed_header_names;
  std::string_view signature;
  std::string timestamp;
  Clock::Wall time;
  std::chrono::seconds expires{0};  // presigned only
  std::string_view session_token;
};

AuthError refuse(std::string_view code, int http_status, std::string message) {
  return {code, http_status, std::move(message), {}, {}};
}

// The wrong form of the header or of the query parameters, by which way the claim came.
AuthError malformed(const Claim& claim, std::string message) {
  if (claim.is_presigned)
    return refuse("AuthorizationQueryParametersError", 400, std::move(message));
  return refuse("AuthorizationHeaderMalformed", 400,
                "the authorization header is malformed; " + std::move(message));
}

AuthError access_denied(std::string message) {
  return refuse("AccessDenied", 403, std::move(message));
}

bool equal_in_constant_time(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

bool is_lower_hex64(std::string_view text) {
  return text.size() == 64 && std::ranges::all_of(text, [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

// "ACCESS_KEY/20130524/us-east-1/s3/aws4_request"; an access key may itself hold a '/'.
Failure read_credential(std::string_view text, Claim& claim) {
  std::string_view fields[4];
  for (size_t i = 4; i-- > 0;) {
    const size_t slash = text.rfind('/');
    if (slash == std::string_view::npos)
      return malformed(claim,
                       "the credential must be of the form "
                       "\"<access key>/YYYYMMDD/<region>/<service>/aws4_request\"");
    fields[i] = text.substr(slash + 1);
    text = text.substr(0, slash);
  }
  claim.access_key = text;
  claim.date = fields[0], claim.region = fields[1], claim.service = fields[2];
  if (fields[3] != "aws4_request")
    return malformed(claim, "the credential must end in \"aws4_request\"");
  if (text.empty() || claim.region.empty() || claim.service.empty())
    return malformed(claim, "the credential has an empty part");
  return std::nullopt;
}

Failure read_signed_headers(std::string_view text, Claim& claim) {
  claim.signed_headers = text;
  claim.signed_header_names = split(text, ';');
  const auto& names = claim.signed_header_names;
  if (names.size() > kSignedHeaderCountMax)
    return malformed(claim,
                     "more than " + std::to_string(kSignedHeaderCountMax) + " signed headers");
  for (const std::string_view name : names)
    if (!is_header_name(name) || to_lower(name) != name)
      return malformed(claim, "a name in SignedHeaders is empty, not lower case or no header name");
  if (std::ranges::adjacent_find(names, std::ranges::greater_equal()) != names.end())
    return malformed(claim, "SignedHeaders must be sorted, each name once");
  if (std::ranges::find(names, "host") == names.end())
    return malformed(claim, "SignedHeaders must include \"host\"");
  return std::nullopt;
}

Failure read_signature(std::string_view text, Claim& claim) {
  claim.signature = text;
  if (!is_lower_hex64(text))
    return malformed(claim, "the signature must be 64 lower-case hexadecimal digits");
  return std::nullopt;
}

// The "key=value" parts behind the algorithm: each of the three once, in any order.
Failure read_header_fields(std::string_view text, Claim& claim) {
  std::optional<std::string_view> credential, signed_headers, signature;
  for (const std::string_view part : split(text, ',')) {
    const std::string_view field = trimmed(part);
    const size_t equals = std::min(field.find('='), field.size());
    const std::string_view name = field.substr(0, equals);
    auto* slot = name == "Credential"      ? &credential
                 : name == "SignedHeaders" ? &signed_headers
                 : name == "Signature"     ? &signature
                                           : nullptr;
    if (slot == nullptr || equals == field.size() || slot->has_value())
      return malformed(claim, "it must hold Credential=, SignedHeaders= and Signature=, each once");
    *slot = field.substr(equals + 1);
  }
  if (!credential || !signed_headers || !signature)
    return malformed(claim, "it must hold Credential=, SignedHeaders= and Signature=, each once");
  if (auto failure = read_credential(*credential, claim)) return failure;
  if (auto failure = read_signed_headers(*signed_headers, claim)) return failure;
  return read_signature(*signature, claim);
}

// The form of HTTP, and what botocore sends in its place: Python's formatdate() ends in "-0000".
std::optional<Clock::Wall> parse_date_header(std::string_view text) {
  std::string date(text);
  for (const std::string_view zone : {" -0000", " +0000"})
    if (date.ends_with(zone)) date.replace(date.size() - zone.size(), zone.size(), " GMT");
  const auto time = parse_http_date(date);
  return time ? std::optional(*time) : std::nullopt;
}

// x-amz-date, or else Date, in the form of either.
Failure read_header_date(const Headers& headers, Claim& claim) {
  const auto text = headers.find("x-amz-date");
  const auto value = text ? text : headers.find("date");
  const std::string_view date = value ? trimmed(*value) : std::string_view();
  if (const auto time = parse_timestamp(date)) {
    claim.time = *time;
  } else if (const auto time = parse_date_header(date)) {
    claim.time = *time;
  } else {
    return access_denied("AWS authentication requires a valid Date or x-amz-date header");
  }
  claim.timestamp = format_timestamp(claim.time);
  return std::nullopt;
}

Failure read_header_claim(const SignableRequest& request, std::string_view authorization,
                          Claim& claim) {
  const std::string_view text = trimmed(authorization);
  const size_t space = std::min(text.find(' '), text.size());
  if (text.substr(0, space) != kAlgorithm)
    return refuse("InvalidRequest", 400,
                  "the authorization mechanism you have provided is not supported; please use "
                  "AWS4-HMAC-SHA256");
  if (auto failure = read_header_fields(text.substr(space), claim)) return failure;
  if (auto failure = read_header_date(request.headers, claim)) return failure;
  claim.session_token = request.headers.value_or("x-amz-security-token", "");
  return std::nullopt;
}

Failure read_expires(std::string_view text, Claim& claim) {
  int64_t seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (text.empty() || error != std::errc() || end != text.data() + text.size())
    return malformed(claim, "X-Amz-Expires must be a number");
  if (seconds < 1 || seconds > kPresignedExpiresMax.count())
    return malformed(claim, "X-Amz-Expires must be from 1 to 604800 seconds (a week)");
  claim.expires = std::chrono::seconds(seconds);
  return std::nullopt;
}

// The value of a parameter that must be there once.
std::optional<std::string_view> only(const std::vector<QueryPair>& query, std::string_view name) {
  std::optional<std::string_view> value;
  for (const QueryPair& pair : query) {
    if (pair.name != name) continue;
    if (value) return std::nullopt;
    value = pair.value;
  }
  return value;
}

bool has(const std::vector<QueryPair>& query, std::string_view name) {
  return std::ranges::find(query, name, &QueryPair::name) != query.end();
}

Failure read_query_claim(const std::vector<QueryPair>& query, Claim& claim) {
  claim.is_presigned = true;
  const auto algorithm = only(query, "X-Amz-Algorithm"), date = only(query, "X-Amz-Date"),
             credential = only(query, "X-Amz-Credential"), expires = only(query, "X-Amz-Expires"),
             signed_headers = only(query, "X-Amz-SignedHeaders"),
             signature = only(query, "X-Amz-Signature");
  if (!algorithm || !date || !credential || !expires || !signed_headers || !signature)
    return malformed(claim, std::string(kQueryParametersWanted));
  if (*algorithm != kAlgorithm)
    return malformed(claim, "X-Amz-Algorithm only supports \"AWS4-HMAC-SHA256\"");
  if (auto failure = read_credential(*credential, claim)) return failure;
  if (auto failure = read_signed_headers(*signed_headers, claim)) return failure;
  if (auto failure = read_signature(*signature, claim)) return failure;
  if (auto failure = read_expires(*expires, claim)) return failure;
  const auto time = parse_timestamp(*date);
  if (!time) return malformed(claim, "X-Amz-Date must have the form YYYYMMDDTHHMMSSZ");
  claim.time = *time;
  claim.timestamp = *date;
  if (has(query, "X-Amz-Security-Token")) {
    const auto token = only(query, "X-Amz-Security-Token");
    if (!token) return malformed(claim, "X-Amz-Security-Token is there twice");
    claim.session_token = *token;
  }
  return std::nullopt;
}

Failure read_claim(const SignableRequest& request, const std::vector<QueryPair>& query,
                   Claim& claim) {
  const auto authorization = request.headers.find("authorization");
  const bool is_presigned = has(query, "X-Amz-Algorithm") || has(query, "X-Amz-Signature");
  if (authorization && is_presigned)
    return refuse("InvalidArgument", 400,
                  "only one authentication mechanism is allowed: the X-Amz-Algorithm query "
                  "parameter or the Authorization header");
  if (is_presigned) return read_query_claim(query, claim);
  if (authorization) return read_header_claim(request, *authorization, claim);
  return refuse("MissingAuthenticationToken", 403, "the request is not signed");
}

Failure check_scope(const Claim& claim, const VerifierOptions& options) {
  if (claim.date != std::string_view(claim.timestamp).substr(0, 8))
    return malformed(claim, "invalid credential date \"" + std::string(claim.date) +
                                "\": it is not the day of the request's date \"" + claim.timestamp +
                                "\"");
  if (!options.region.empty() && claim.region != options.region)
    return malformed(claim, "the region '" + std::string(claim.region) + "' is wrong; expecting '" +
                                options.region + "'");
  if (!options.service.empty() && claim.service != options.service)
    return malformed(claim, "incorrect service \"" + std::string(claim.service) +
                                "\"; this endpoint belongs to \"" + options.service + "\"");
  return std::nullopt;
}

Failure check_time(const Claim& claim, Clock::Wall now) {
  if (claim.is_presigned) {
    if (claim.time > now + kClockSkewMax) return access_denied("request is not yet valid");
    if (now > claim.time + claim.expires) return access_denied("request has expired");
    return std::nullopt;
  }
  if (claim.time > now + kClockSkewMax || now > claim.time + kClockSkewMax)
    return refuse("RequestTimeTooSkewed", 403,
                  "the difference between the request time " + claim.timestamp +
                      " and the server's time " + format_timestamp(now) + " is too large");
  return std::nullopt;
}

Failure check_token(const Claim& claim, const Credentials& credentials) {
  if (equal_in_constant_time(claim.session_token, credentials.session_token)) return std::nullopt;
  return refuse("InvalidToken", 400, "the provided security token is malformed or invalid");
}

// The payload's hash is itself a line of what is signed, hence needs no signed header.
Failure check_all_amz_headers_signed(const Headers& headers, const Claim& claim) {
  const auto& names = claim.signed_header_names;
  for (const auto field : headers) {
    const std::string name = to_lower(field.name);
    if (!name.starts_with("x-amz-") || std::ranges::binary_search(names, name)) continue;
    if (name == "x-amz-content-sha256" && !claim.is_presigned) continue;
    return access_denied("there were headers present in the request which were not signed: " +
                         name);
  }
  return std::nullopt;
}

struct Payload {
  std::string text;  // as signed
  PayloadKind kind = PayloadKind::kSha256;
};

std::optional<PayloadKind> payload_kind(std::string_view text) {
  if (is_lower_hex64(text)) return PayloadKind::kSha256;
  if (text == kUnsignedPayload) return PayloadKind::kUnsigned;
  if (text == kStreamingSignedPayload) return PayloadKind::kStreamingSigned;
  if (text == kStreamingSignedPayloadTrailer) return PayloadKind::kStreamingSignedTrailer;
  if (text == kStreamingUnsignedPayloadTrailer) return PayloadKind::kStreamingUnsignedTrailer;
  return std::nullopt;
}

// Where the request says it: the header, for presigned ones a parameter of that name too.
std::optional<std::string_view> payload_named(const SignableRequest& request,
                                              const std::vector<QueryPair>& query,
                                              const Claim& claim) {
  if (claim.is_presigned)
    for (const QueryPair& pair : query)
      if (equals_ignoring_case(pair.name, "x-amz-content-sha256")) return pair.value;
  const auto header = request.headers.find("x-amz-content-sha256");
  return header ? std::optional(trimmed(*header)) : std::nullopt;
}

Failure read_payload(const SignableRequest& request, const std::vector<QueryPair>& query,
                     const Claim& claim, std::string_view body_sha256, Payload& payload) {
  if (const auto named = payload_named(request, query, claim)) {
    const auto kind = payload_kind(*named);
    if (!kind)
      return refuse("InvalidArgument", 400,
                    "x-amz-content-sha256 must be UNSIGNED-PAYLOAD, "
                    "STREAMING-UNSIGNED-PAYLOAD-TRAILER, STREAMING-AWS4-HMAC-SHA256-PAYLOAD, "
                    "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER or a SHA-256 in hexadecimal");
    payload = {std::string(*named), *kind};
  } else if (claim.service != "s3") {
    payload = {std::string(body_sha256), PayloadKind::kSha256};
  } else if (claim.is_presigned) {
    payload = {std::string(kUnsignedPayload), PayloadKind::kUnsigned};
  } else {
    return refuse("InvalidRequest", 400,
                  "missing required header for this request: x-amz-content-sha256");
  }
  return std::nullopt;
}

AuthError mismatch(std::string message) {
  return refuse("SignatureDoesNotMatch", 403, std::move(message));
}

// Whether one of the readings of path and query has the claimed signature. The first, AWS's own, is
// the one to show when none has.
Failure check_signature(const SignableRequest& request, const Claim& claim, const Payload& payload,
                        const SigningKey& key) {
  const auto headers = canonical_headers(request.headers, claim.signed_header_names);
  if (!headers) return mismatch("a header named in SignedHeaders is not in the request");
  const auto paths = canonical_paths(request.raw_path, claim.service);
  const auto queries = canonical_queries(request.raw_query);
  if (paths.empty() || queries.empty())
    return refuse("InvalidURI", 400, "could not parse the specified URI");
  const std::string scope = credential_scope(claim.date, claim.region, claim.service);
  Failure failure;
  for (const std::string& path : paths)
    for (const std::string& query : queries) {
      auto text = canonical_request(request.method, path, query, *headers, claim.signed_headers,
                                    payload.text);
      auto to_sign = string_to_sign(claim.timestamp, scope, text);
      if (equal_in_constant_time(key.sign(to_sign), claim.signature)) return std::nullopt;
      if (failure) continue;
      failure = mismatch(
          "the request signature we calculated does not match the signature you provided; check "
          "your key and signing method");
      failure->canonical_request = std::move(text);
      failure->string_to_sign = std::move(to_sign);
    }
  return failure;
}

}  // namespace

std::variant<VerifiedRequest, AuthError> SignatureVerifier::verify(
    const SignableRequest& request, std::string_view body_sha256) const {
  const auto query = parse_query(request.raw_query);
  if (!query) return refuse("InvalidURI", 400, "could not parse the specified URI");
  Claim claim;
  if (auto failure = read_claim(request, *query, claim)) return *std::move(failure);
  if (auto failure = check_scope(claim, options_)) return *std::move(failure);
  if (auto failure = check_time(claim, clock_.wall_now())) return *std::move(failure);
  const auto credentials = lookup_(claim.access_key);
  if (!credentials)
    return refuse("InvalidAccessKeyId", 403,
                  "the AWS access key id you provided does not exist in our records");
  if (auto failure = check_token(claim, *credentials)) return *std::move(failure);
  if (auto failure = check_all_amz_headers_signed(request.headers, claim))
    return *std::move(failure);
  Payload payload;
  if (auto failure = read_payload(request, *query, claim, body_sha256, payload))
    return *std::move(failure);
  const SigningKey key =
      keys_.get(credentials->secret_key, claim.date, claim.region, claim.service);
  if (auto failure = check_signature(request, claim, payload, key)) return *std::move(failure);

  return VerifiedRequest{
      .access_key = std::string(claim.access_key),
      .region = std::string(claim.region),
      .service = std::string(claim.service),
      .is_presigned = claim.is_presigned,
      .payload = payload.kind,
      .payload_sha256 = payload.kind == PayloadKind::kSha256 ? payload.text : std::string(),
      .chunk_signer = ChunkSigner(key, claim.timestamp,
                                  credential_scope(claim.date, claim.region, claim.service),
                                  std::string(claim.signature))};
}

}  // namespace yard
