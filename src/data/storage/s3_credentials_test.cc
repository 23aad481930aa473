#include "storage/s3_credentials.h"

#include <gtest/gtest.h>

#include "base/testing/fake_clock.h"
#include "net/http_server.h"

namespace yard::storage {
namespace {

using namespace std::chrono_literals;

constexpr std::string_view kAnswer =
    R"({"Code":"Success","AccessKeyId":"AK","SecretAccessKey":"SK","Token":"T",)"
    R"("Expiration":"2026-01-01T06:00:00Z"})";

TEST(CredentialsProviderTest, KeysAreRenewedFiveMinutesBeforeTheyExpire) {
  FakeClock clock;
  int fetches = 0;
  CredentialsProvider provider(
      [&]() -> Result<ExpiringCredentials> {
        return ExpiringCredentials{{std::to_string(++fetches), "s", ""}, clock.wall_now() + 1h};
      },
      clock);
  EXPECT_EQ(provider.get()->access_key, "1");
  clock.advance(54min);
  EXPECT_EQ(provider.get()->access_key, "1");
  clock.advance(2min);
  EXPECT_EQ(provider.get()->access_key, "2");
}

TEST(CredentialsProviderTest, OldKeysAreUsedWhileRenewalFailsUntilTheyExpire) {
  FakeClock clock;
  bool fails = false;
  CredentialsProvider provider(
      [&]() -> Result<ExpiringCredentials> {
        if (fails) return Error{Code::kUnavailable, "no service"};
        return ExpiringCredentials{{"A", "s", ""}, clock.wall_now() + 10min};
      },
      clock);
  ASSERT_TRUE(provider.get());
  fails = true;
  clock.advance(9min);
  EXPECT_TRUE(provider.get());
  clock.advance(2min);
  EXPECT_EQ(provider.get().error().code, Code::kUnavailable);
}

TEST(CredentialsProviderTest, RefusedKeysAreFetchedAnewUnlessThatWasDone) {
  FakeClock clock;
  int fetches = 0;
  CredentialsProvider provider(
      [&]() -> Result<ExpiringCredentials> {
        return ExpiringCredentials{{std::to_string(++fetches), "s", ""}, std::nullopt};
      },
      clock);
  const Credentials first = *provider.get();
  provider.refuse(first);
  EXPECT_EQ(provider.get()->access_key, "2");
  provider.refuse(first);  // by a thread that had the old ones
  EXPECT_EQ(provider.get()->access_key, "2");
}

// What the services of containers and machines answer.
class MetadataServer {
 public:
  MetadataServer() {
    server_ = *HttpServer::start({}, [this](Request& request, ResponseWriter& response) {
      const std::string path(request.path());
      const auto has = [&](std::string_view name, std::string_view value) {
        return request.headers().value_or(name, "") == value;
      };
      if (path == "/latest/api/token" && request.method() == "PUT" &&
          has("X-aws-ec2-metadata-token-ttl-seconds", "21600"))
        return (void)response.send(200, "token");
      const std::string roles = "/latest/meta-data/iam/security-credentials/";
      if (path == roles && has("X-aws-ec2-metadata-token", "token"))
        return (void)response.send(200, "the-role");
      if (path == roles + "the-role" && has("X-aws-ec2-metadata-token", "token"))
        return (void)response.send(200, answer);
      if (path == "/container" && has("Authorization", "secret"))
        return (void)response.send(200, answer);
      (void)response.send(403, "no");
    });
  }
  std::string url() const { return server_->url(); }

  std::string answer{kAnswer};

 private:
  std::unique_ptr<HttpServer> server_;
};

TEST(DefaultCredentialsTest, AMachineGivesThemByImdsV2) {
  MetadataServer server;
  HttpClient http({});
  FakeClock clock;
  const auto provider = default_credentials(
      {}, {{"AWS_EC2_METADATA_SERVICE_ENDPOINT", server.url() + "/"}}, http, clock);
  const auto keys = provider->get();
  ASSERT_TRUE(keys) << keys.error().message;
  EXPECT_EQ(keys->access_key, "AK");
  EXPECT_EQ(keys->secret_key, "SK");
  EXPECT_EQ(keys->session_token, "T");
}

TEST(DefaultCredentialsTest, AContainerGivesThemForItsToken) {
  MetadataServer server;
  HttpClient http({});
  FakeClock clock;
  Environment env = {{"AWS_CONTAINER_CREDENTIALS_FULL_URI", server.url() + "/container"},
                     {"AWS_CONTAINER_AUTHORIZATION_TOKEN", "secret"}};
  EXPECT_EQ(default_credentials({}, env, http, clock)->get()->access_key, "AK");
  env["AWS_CONTAINER_AUTHORIZATION_TOKEN"] = "wrong";
  EXPECT_FALSE(default_credentials({}, env, http, clock)->get());
}

TEST(DefaultCredentialsTest, KeysAreNotFetchedOverPlainHttpFromElsewhere) {
  HttpClient http({});
  FakeClock clock;
  for (const char* url :
       {"http://example.com/x", "http://127.0.0.1.example.com/x", "ftp://127.0.0.1"})
    EXPECT_EQ(default_credentials({}, {{"AWS_CONTAINER_CREDENTIALS_FULL_URI", url}}, http, clock)
                  ->get()
                  .error()
                  .code,
              Code::kInvalidArgument)
        << url;
}

TEST(DefaultCredentialsTest, WithoutAnyTheMessageSaysWhatToDo) {
  HttpClient http({});
  FakeClock clock;
  const auto keys =
      default_credentials({}, {{"AWS_EC2_METADATA_DISABLED", "true"}}, http, clock)->get();
  ASSERT_FALSE(keys);
  EXPECT_EQ(keys.error().code, Code::kNotFound);
  EXPECT_NE(keys.error().message.find("AWS_ACCESS_KEY_ID"), std::string::npos);
}

TEST(ServiceCredentialsTest, AnswersThatAreNoneAreRefused) {
  ASSERT_TRUE(parse_service_credentials(kAnswer, "x"));
  for (const char* bad :
       {"", "[]", "{}", R"({"Code":"Failed"})", R"({"AccessKeyId":"A","SecretAccessKey":1})",
        R"({"AccessKeyId":"A","SecretAccessKey":"S","Expiration":"soon"})"})
    EXPECT_FALSE(parse_service_credentials(bad, "x")) << bad;
}

}  // namespace
}  // namespace yard::storage
