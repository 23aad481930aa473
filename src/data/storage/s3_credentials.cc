#include "storage/s3_credentials.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/file.h"
#include "base/json.h"
#include "storage/s3_xml_internal.h"

namespace yard::storage {
namespace {

using namespace std::chrono_literals;

constexpr std::chrono::seconds kRenewMargin = 5min;
constexpr std::chrono::milliseconds kServiceTimeout = 1s;  // as botocore's
constexpr size_t kAnswerBytesMax = 64 << 10;
constexpr int kAttempts = 2;

std::string value_of(const Environment& env, const std::string& name) {
  const auto it = env.find(name);
  return it == env.end() ? std::string() : it->second;
}

Result<std::string> ask(HttpClient& http, const std::string& method, const std::string& url,
                        const Headers& headers) {
  std::optional<Error> error;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    auto response = http.send({.method = method,
                               .url = url,
                               .headers = headers,
                               .body_bytes_max = kAnswerBytesMax,
                               .connect_timeout = kServiceTimeout,
                               .total_timeout = kServiceTimeout});
    if (response && response->status == 200) return std::move(response->body);
    error = response ? Error{Code::kUnavailable, fmt::format("{}: {}", url, response->status)}
                     : std::move(response).error();
    if (response && response->status < 500) break;  // it will say the same again
  }
  return *std::move(error);
}

Result<std::string> container_token(const Environment& env) {
  const std::string path = value_of(env, "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
  if (path.empty()) return value_of(env, "AWS_CONTAINER_AUTHORIZATION_TOKEN");
  YARD_ASSIGN(std::string token, read_file(path, kAnswerBytesMax));
  while (token.ends_with('\n') || token.ends_with('\r')) token.pop_back();
  return token;
}

// Over plain HTTP keys may come from this machine only: loopback, ECS, EKS.
bool is_trusted_url(std::string_view url) {
  if (url.starts_with("https://")) return true;
  for (const std::string_view host :
       {"127.0.0.1", "localhost", "[::1]", "169.254.170.2", "169.254.170.23", "[fd00:ec2::23]"}) {
    const std::string start = fmt::format("http://{}", host);
    if (!url.starts_with(start)) continue;
    const std::string_view rest = url.substr(start.size());
    if (rest.empty() || rest.front() == ':' || rest.front() == '/') return true;
  }
  return false;
}

Result<ExpiringCredentials> from_container(HttpClient& http, const Environment& env) {
  const std::string relative = value_of(env, "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
  const std::string url = relative.empty() ? value_of(env, "AWS_CONTAINER_CREDENTIALS_FULL_URI")
                                           : "http://169.254.170.2" + relative;
  if (!is_trusted_url(url))
    return Error{
        Code::kInvalidArgument,
        fmt::format("'{}': keys are not fetched over plain HTTP from another machine", url)};
  Headers headers;
  YARD_ASSIGN(const std::string token, container_token(env));
  if (!token.empty()) headers.add("Authorization", token);
  YARD_ASSIGN(const std::string answer, ask(http, "GET", url, headers));
  return parse_service_credentials(answer, url);
}

// "Instance Metadata Service Version 2", Amazon EC2 User Guide.
Result<ExpiringCredentials> from_instance(HttpClient& http, const Environment& env) {
  std::string base = value_of(env, "AWS_EC2_METADATA_SERVICE_ENDPOINT");
  if (base.empty()) base = "http://169.254.169.254";
  while (base.ends_with('/')) base.pop_back();
  YARD_ASSIGN(const std::string token, ask(http, "PUT", base + "/latest/api/token",
                                           {{"X-aws-ec2-metadata-token-ttl-seconds", "21600"}}));
  const Headers headers{{"X-aws-ec2-metadata-token", token}};
  const std::string roles = base + "/latest/meta-data/iam/security-credentials/";
  YARD_ASSIGN(std::string role, ask(http, "GET", roles, headers));
  role.resize(std::min(role.find('\n'), role.size()));
  YARD_ASSIGN(const std::string answer, ask(http, "GET", roles + role, headers));
  return parse_service_credentials(answer, roles + role);
}

}  // namespace

Result<ExpiringCredentials> parse_service_credentials(std::string_view json,
                                                      std::string_view what) {
  YARD_ASSIGN(const Json document, parse_json(json, what));
  const auto refuse = [&](std::string_view why) {
    return Error{Code::kCorrupt, fmt::format("{}: {}", what, why)};
  };
  auto code = json_field_or<std::string>(document, "Code", "Success", what);
  if (!code || *code != "Success") return refuse("the service gave no credentials");
  auto access_key = json_field<std::string>(document, "AccessKeyId", what);
  auto secret_key = json_field<std::string>(document, "SecretAccessKey", what);
  auto token = json_field_or<std::string>(document, "Token", "", what);
  auto expiration = json_field_or<std::string>(document, "Expiration", "", what);
  if (!access_key || !secret_key || !token || !expiration)
    return refuse("the service's answer has no key pair");
  ExpiringCredentials found{{*access_key, *secret_key, *token}, std::nullopt};
  if (expiration->empty()) return found;
  found.expires = s3_xml::parse_time(*expiration);
  if (!found.expires) return refuse("the time of expiration is none");
  return found;
}

std::shared_ptr<CredentialsProvider> CredentialsProvider::fixed(Credentials credentials) {
  return std::make_shared<CredentialsProvider>(
      [credentials = std::move(credentials)]() -> Result<ExpiringCredentials> {
        return ExpiringCredentials{credentials, std::nullopt};
      },
      Clock::real());
}

bool CredentialsProvider::is_fresh(std::chrono::seconds margin) const {
  return current_ && (!current_->expires || clock_.wall_now() + margin < *current_->expires);
}

Result<Credentials> CredentialsProvider::get() {
  const std::lock_guard lock(mutex_);
  if (is_fresh(kRenewMargin)) return current_->credentials;
  auto fetched = fetch_();
  if (fetched)
    current_ = *std::move(fetched);
  else if (!is_fresh(0s))
    return std::move(fetched).error();
  return current_->credentials;
}

void CredentialsProvider::refuse(const Credentials& credentials) {
  const std::lock_guard lock(mutex_);
  // Unless another thread has renewed them meanwhile.
  if (current_ && current_->credentials.access_key == credentials.access_key &&
      current_->credentials.session_token == credentials.session_token)
    current_.reset();
}

std::shared_ptr<CredentialsProvider> default_credentials(const AwsSettings& settings,
                                                         const Environment& env, HttpClient& http,
                                                         const Clock& clock) {
  if (settings.credentials) return CredentialsProvider::fixed(*settings.credentials);
  const auto fetch = [env, &http]() -> Result<ExpiringCredentials> {
    if (!value_of(env, "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI").empty() ||
        !value_of(env, "AWS_CONTAINER_CREDENTIALS_FULL_URI").empty()) {
      auto found = from_container(http, env);
      if (!found) return std::move(found).error().while_("fetching the container's credentials");
      return found;
    }
    std::string why = "the machine's metadata service is switched off";
    if (value_of(env, "AWS_EC2_METADATA_DISABLED") != "true") {
      auto found = from_instance(http, env);
      if (found) return found;
      why = found.error().message;
    }
    return Error{Code::kNotFound,
                 fmt::format("no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or "
                             "write a profile to ~/.aws/credentials; those of a gateway: "
                             "`yard s3 env DIR` ({})",
                             why)};
  };
  return std::make_shared<CredentialsProvider>(fetch, clock);
}

}  // namespace yard::storage
