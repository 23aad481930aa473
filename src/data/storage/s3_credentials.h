// Who signs: the credentials of an S3 client, fetched where AWS's tools look for them and renewed
// before they expire.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/clock.h"
#include "net/http_client.h"
#include "net/sigv4.h"
#include "storage/aws_settings.h"

namespace yard::storage {

struct ExpiringCredentials {
  Credentials credentials;
  std::optional<Clock::Wall> expires;  // none: for ever
};

// Keeps what `fetch` gave until five minutes before it expires. While renewal fails, old
// credentials are used until they expire. Thread-safe; one thread fetches, the others wait for it.
class CredentialsProvider {
 public:
  using Fetch = std::function<Result<ExpiringCredentials>()>;

  // `clock` outlives the provider.
  CredentialsProvider(Fetch fetch, const Clock& clock) : fetch_(std::move(fetch)), clock_(clock) {}
  static std::shared_ptr<CredentialsProvider> fixed(Credentials credentials);

  // As fetch fails: kNotFound when there are none, with a message that says where was looked.
  Result<Credentials> get();
  // The server called these expired: the next get() fetches anew.
  void refuse(const Credentials& credentials);

 private:
  bool is_fresh(std::chrono::seconds margin) const;

  const Fetch fetch_;
  const Clock& clock_;
  std::mutex mutex_;
  std::optional<ExpiringCredentials> current_;
};

// The chain of AWS's tools: what `settings` found written down, then the container's service
// (AWS_CONTAINER_CREDENTIALS_RELATIVE_URI or _FULL_URI, with AWS_CONTAINER_AUTHORIZATION_TOKEN or
// _FILE), then the machine's (IMDSv2; not when AWS_EC2_METADATA_DISABLED is "true";
// AWS_EC2_METADATA_SERVICE_ENDPOINT is another address of it). `http` and `clock` outlive the
// provider.
std::shared_ptr<CredentialsProvider> default_credentials(const AwsSettings& settings,
                                                         const Environment& env, HttpClient& http,
                                                         const Clock& clock);

// The JSON that both services answer. kCorrupt for anything else. Pure.
Result<ExpiringCredentials> parse_service_credentials(std::string_view json, std::string_view what);

}  // namespace yard::storage
