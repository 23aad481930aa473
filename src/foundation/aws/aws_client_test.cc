#include "aws/aws_client.h"

#include <gtest/gtest.h>

#include <atomic>

#include "net/checksums.h"
#include "net/http_server.h"

namespace yard::aws {
namespace {

const Credentials kKey{"AKIDEXAMPLE", "secret", ""};

// Answers what the test says, to requests that are signed with the key.
class Service {
 public:
  explicit Service(std::function<std::pair<int, std::string>(const std::string& target)> answer) {
    auto started =
        HttpServer::start({}, [this, answer](Request& request, ResponseWriter& response) {
          ++count_;
          const auto body = request.read_all(1 << 20);
          const auto verified = verifier_.verify(
              {request.method(), request.path(), request.query(), request.headers()},
              sha256_hex(*body));
          const bool is_signed = std::holds_alternative<VerifiedRequest>(verified);
          const std::string target(request.headers().value_or("x-amz-target", ""));
          const auto [status, text] =
              is_signed ? answer(target + " " + std::string(request.target()))
                        : std::pair(403, std::string("{\"__type\":\"IncompleteSignature\"}"));
          (void)response.send(status, text);
        });
    YARD_CHECK(started.has_value());
    server_ = *std::move(started);
  }
  AwsClient client(std::chrono::milliseconds patience = std::chrono::seconds(10)) const {
    return AwsClient({.url = server_->url() + "/", .credentials = kKey}, Clock::real(), patience);
  }
  int count() const { return count_; }

 private:
  const SignatureVerifier verifier_{
      {}, [](std::string_view) { return std::optional<Credentials>(kKey); }, Clock::real()};
  std::atomic<int> count_ = 0;
  std::unique_ptr<HttpServer> server_;
};

TEST(AwsClient, CallsAnOperationByItsTarget) {
  const Service service([](const std::string& target) {
    return std::pair(200, Json{{"asked", target}}.dump());
  });
  const auto answer = service.client().call(kSageMaker, "ListTrainingJobs", {{"MaxResults", 1}});
  ASSERT_TRUE(answer) << answer.error().message;
  EXPECT_EQ((*answer)["asked"], "SageMaker.ListTrainingJobs /");
}

TEST(AwsClient, AsksAgainWhatMayHelp) {
  std::atomic<int> calls = 0;
  const Service service([&calls](const std::string&) {
    return ++calls < 3 ? std::pair(503, std::string()) : std::pair(200, std::string());
  });
  EXPECT_TRUE(service.client().call(kSqs, "ReceiveMessage", Json::object()));
  EXPECT_EQ(service.count(), 3);
}

TEST(AwsClient, WhatIsRefusedIsAskedOnce) {
  const Service service([](const std::string&) {
    return std::pair(400, std::string("{\"__type\":\"com.amazonaws#ValidationException\","
                                      "\"message\":\"bad\"}"));
  });
  const auto answer = service.client().call(kSageMaker, "CreateTrainingJob", Json::object());
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, Code::kInvalidArgument);
  EXPECT_EQ(answer.error().message, "CreateTrainingJob: ValidationException: bad");
  EXPECT_EQ(service.count(), 1);
}

TEST(AwsClient, ErrorsSayWhatTheCallerCanDo) {
  const auto code = [](int status, const char* body) {
    return error_of_answer("Op", status, body).code;
  };
  EXPECT_EQ(
      code(400, R"({"__type":"ValidationException","message":"Could not find requested job"})"),
      Code::kNotFound);
  EXPECT_EQ(code(400, R"({"__type":"com.amazonaws.sqs#QueueDoesNotExist","message":"x"})"),
            Code::kNotFound);
  EXPECT_EQ(code(400, R"({"__type":"ThrottlingException","Message":"slow"})"), Code::kUnavailable);
  EXPECT_EQ(code(500, "<html>"), Code::kUnavailable);
  EXPECT_EQ(code(404, "<Error><Code>NoSuchBucket</Code><Message>m</Message></Error>"),
            Code::kNotFound);
  EXPECT_EQ(code(403, ""), Code::kInvalidArgument);
}

TEST(AwsClient, NobodyThereIsUnavailable) {
  const AwsClient client({.url = "http://127.0.0.1:1", .credentials = kKey}, Clock::real(),
                         std::chrono::milliseconds(0));
  const auto answer = client.call(kLogs, "GetLogEvents", Json::object());
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, Code::kUnavailable);
}

}  // namespace
}  // namespace yard::aws
