#include <algorithm>
#include <vector>

#include "base/result.h"
#include "net/sigv4.h"
#include "net/sigv4_internal.h"
#include "net/uri.h"

namespace yard {

using namespace sigv4_internal;

namespace {

// Headers that a proxy or a tracer may change on the way: a signature over them would break.
constexpr std::string_view kUnsignable[] = {"authorization",
                                            "baggage",
                                            "connection",
                                            "expect",
                                            "keep-alive",
                                            "proxy-authenticate",
                                            "proxy-authorization",
                                            "te",
                                            "traceparent",
                                            "tracestate",
                                            "trailer",
                                            "transfer-encoding",
                                            "upgrade",
                                            "user-agent",
                                            "x-amzn-trace-id"};

// Lower case, sorted, each once.
std::vector<std::string> signable_names(const Headers& headers) {
  std::vector<std::string> names;
  for (const auto field : headers) {
    std::string name = to_lower(field.name);
    if (std::ranges::find(kUnsignable, name) == std::end(kUnsignable))
      names.push_back(std::move(name));
  }
  std::ranges::sort(names);
  const auto repeated = std::ranges::unique(names);
  names.erase(repeated.begin(), repeated.end());
  return names;
}

// The parts of a signature that both ways share.
struct Draft {
  std::string timestamp;
  std::string scope;
  std::string signed_headers;
  std::string canonical_headers;
};

Draft draft(const Headers& headers, Clock::Wall now, std::string_view region,
            std::string_view service) {
  YARD_CHECK(headers.contains("host"));
  Draft draft;
  draft.timestamp = format_timestamp(now);
  draft.scope = credential_scope(draft.timestamp.substr(0, 8), region, service);
  const auto names = signable_names(headers);
  const std::vector<std::string_view> views(names.begin(), names.end());
  draft.signed_headers = join(views, ';');
  draft.canonical_headers = *canonical_headers(headers, views);
  return draft;
}

std::string signature_of(const Draft& draft, std::string_view method, std::string_view path,
                         std::string_view query, std::string_view payload, const SigningKey& key) {
  const auto request = canonical_request(method, path, query, draft.canonical_headers,
                                         draft.signed_headers, payload);
  return key.sign(string_to_sign(draft.timestamp, draft.scope, request));
}

}  // namespace

Signer::Signed Signer::sign(const SignableRequest& request, const Credentials& credentials,
                            std::string_view payload) const {
  const Clock::Wall now = clock_.wall_now();
  Headers added;
  added.add("x-amz-date", format_timestamp(now));
  if (service_ == "s3" || payload.size() != kEmptyPayloadSha256.size())
    added.add("x-amz-content-sha256", payload);
  if (!credentials.session_token.empty())
    added.add("x-amz-security-token", credentials.session_token);
  Headers all = request.headers;
  for (const auto field : added) {
    YARD_CHECK(!all.contains(field.name));
    all.add(field.name, field.value);
  }

  const Draft parts = draft(all, now, region_, service_);
  const SigningKey key =
      keys_.get(credentials.secret_key, parts.timestamp.substr(0, 8), region_, service_);
  const std::string signature =
      signature_of(parts, request.method, canonical_path_as_sent(request.raw_path, service_),
                   canonical_query_as_sent(request.raw_query), payload, key);
  added.add("authorization", std::string(kAlgorithm) + " Credential=" + credentials.access_key +
                                 "/" + parts.scope + ", SignedHeaders=" + parts.signed_headers +
                                 ", Signature=" + signature);
  return {std::move(added), ChunkSigner(key, parts.timestamp, parts.scope, signature)};
}

std::string Signer::presign(const SignableRequest& request, const Credentials& credentials,
                            std::chrono::seconds expires) const {
  YARD_CHECK(expires.count() >= 1 && expires <= kPresignedExpiresMax);
  const Draft parts = draft(request.headers, clock_.wall_now(), region_, service_);
  std::vector<QueryPair> pairs = {
      {"X-Amz-Algorithm", std::string(kAlgorithm)},
      {"X-Amz-Credential", credentials.access_key + "/" + parts.scope},
      {"X-Amz-Date", parts.timestamp},
      {"X-Amz-Expires", std::to_string(expires.count())},
      {"X-Amz-SignedHeaders", parts.signed_headers},
  };
  if (!credentials.session_token.empty())
    pairs.push_back({"X-Amz-Security-Token", credentials.session_token});
  std::string query(request.raw_query);
  if (!query.empty()) query += '&';
  query += format_query(pairs);

  const SigningKey key =
      keys_.get(credentials.secret_key, parts.timestamp.substr(0, 8), region_, service_);
  const auto payload = service_ == "s3" ? kUnsignedPayload : kEmptyPayloadSha256;
  return query + "&X-Amz-Signature=" +
         signature_of(parts, request.method, canonical_path_as_sent(request.raw_path, service_),
                      canonical_query_as_sent(query), payload, key);
}

}  // namespace yard
