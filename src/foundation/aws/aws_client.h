// AwsClient: calls of AWS APIs in their JSON form, signed (Signature Version 4), from a program of
// ours to `yard serve`, or to AWS itself.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/json.h"
#include "base/result.h"
#include "base/stop_token.h"
#include "net/http_client.h"
#include "net/sigv4.h"

namespace yard::aws {

struct AwsEndpoint {
  std::string url;  // "http://127.0.0.1:8080"
  std::string region = "us-east-1";
  Credentials credentials;
  std::string ca_path;  // PEM; empty: the system's certificates
};

// How a service is named in a request: in X-Amz-Target, in the signature, and its JSON version.
struct JsonService {
  std::string_view target_prefix;
  std::string_view signing_name;
  std::string_view json_version;
};
inline constexpr JsonService kSageMaker{"SageMaker", "sagemaker", "1.1"};
inline constexpr JsonService kLogs{"Logs_20140328", "logs", "1.1"};
inline constexpr JsonService kYard{"Trainyard", "trainyard", "1.1"};  // what AWS has not
inline constexpr JsonService kSqs{"AmazonSQS", "sqs", "1.0"};

// The operation's answer that is no success, as an Error: "CreateTrainingJob: ResourceInUse: ...".
// kNotFound: what was named is not there; kUnavailable: worth another try (5xx, throttled);
// kInvalidArgument: the rest, refused keys and rights included. Pure.
Error error_of_answer(std::string_view operation, int status, std::string_view body);

// Thread-safe. A call is tried again while nobody answers or the answer is kUnavailable, until
// `patience` is over: an operation that was carried out though its answer was lost is done twice.
// Codes: those of error_of_answer() and HttpClient; kCancelled.
class AwsClient {
 public:
  // `clock` outlives it. Nothing is connected to.
  explicit AwsClient(AwsEndpoint endpoint, Clock& clock = Clock::real(),
                     std::chrono::milliseconds patience = std::chrono::seconds(30));

  Result<Json> call(const JsonService& service, std::string_view operation, const Json& input,
                    const StopToken& stop = {}) const;
  // A request of S3 on a bucket that ObjectStore does not know: "PUT", "/raw?notification", XML.
  // The answer's body.
  Result<std::string> s3(std::string_view method, std::string_view path, std::string_view query,
                         std::string_view body, const StopToken& stop = {}) const;

  const AwsEndpoint& endpoint() const { return endpoint_; }

 private:
  struct Message;
  Result<std::string> send(const Message& message, const StopToken& stop) const;
  Result<std::string> send_once(const Message& message, const StopToken& stop) const;

  const AwsEndpoint endpoint_;
  Clock& clock_;
  const std::chrono::milliseconds patience_;
  const std::unique_ptr<HttpClient> http_;
};

}  // namespace yard::aws
