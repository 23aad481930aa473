#include "aws/aws_client.h"

#include <fmt/format.h>

#include <algorithm>

#include "net/checksums.h"

namespace yard::aws {
namespace {

constexpr std::chrono::milliseconds kFirstPause{50};
constexpr std::chrono::milliseconds kPauseMax{2'000};
constexpr std::chrono::seconds kAnswerTimeout{60};  // a receive waits up to 20 s

// "127.0.0.1:8080" of "http://127.0.0.1:8080/".
std::string authority_of(std::string_view url) {
  const size_t scheme = url.find("//");
  if (scheme != url.npos) url.remove_prefix(scheme + 2);
  return std::string(url.substr(0, url.find('/')));
}

std::string without_slash(std::string url) {
  while (url.ends_with('/')) url.pop_back();
  return url;
}

std::string text_of(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_string() ? found->get<std::string>() : "";
}

// The text between the first <name> and </name>; S3 answers in XML, flat where it says what failed.
std::string xml_text(std::string_view xml, std::string_view name) {
  const std::string open = fmt::format("<{}>", name);
  const size_t begin = xml.find(open);
  const size_t end = xml.find(fmt::format("</{}>", name));
  if (begin == xml.npos || end == xml.npos || end < begin + open.size()) return "";
  return std::string(xml.substr(begin + open.size(), end - begin - open.size()));
}

struct Refusal {
  std::string name;
  std::string message;
};

Refusal refusal_of(std::string_view body) {
  const auto json = parse_json(body, "answer");
  if (!json || !json->is_object()) return {xml_text(body, "Code"), xml_text(body, "Message")};
  std::string name = text_of(*json, "__type");
  name = name.substr(name.rfind('#') + 1);
  std::string message = text_of(*json, "message");
  return {std::move(name), message.empty() ? text_of(*json, "Message") : std::move(message)};
}

Code code_of(int status, const Refusal& refusal) {
  if (status >= 500 || status == 429 || refusal.name.starts_with("Throttling"))
    return Code::kUnavailable;
  const bool is_missing = status == 404 || refusal.message.starts_with("Could not find") ||
                          refusal.name.ends_with("NotFoundException") ||
                          refusal.name.ends_with("QueueDoesNotExist") ||
                          refusal.name == "ResourceNotFound";
  return is_missing ? Code::kNotFound : Code::kInvalidArgument;
}

}  // namespace

Error error_of_answer(std::string_view operation, int status, std::string_view body) {
  const Refusal refusal = refusal_of(body);
  if (refusal.name.empty())
    return {code_of(status, refusal), fmt::format("{}: HTTP status {}", operation, status)};
  return {code_of(status, refusal),
          fmt::format("{}: {}: {}", operation, refusal.name, refusal.message)};
}

struct AwsClient::Message {
  std::string_view what;  // for people
  std::string_view method;
  std::string_view service;
  std::string path;
  std::string_view query;
  std::string_view body;
  Headers headers;
};

AwsClient::AwsClient(AwsEndpoint endpoint, Clock& clock, std::chrono::milliseconds patience)
    : endpoint_(std::move(endpoint)),
      clock_(clock),
      patience_(patience),
      http_(std::make_unique<HttpClient>(HttpClientOptions{.ca_path = endpoint_.ca_path})) {}

Result<std::string> AwsClient::send_once(const Message& message, const StopToken& stop) const {
  Headers headers = message.headers;
  headers.set("host", authority_of(endpoint_.url));
  const Signer signer(endpoint_.region, std::string(message.service), clock_);
  const auto made = signer.sign({message.method, message.path, message.query, headers},
                                endpoint_.credentials, sha256_hex(message.body));
  for (const auto& [name, value] : made.headers) headers.add(name, value);
  HttpRequest request;
  request.method = message.method;
  request.url = without_slash(endpoint_.url) + message.path;
  if (!message.query.empty()) request.url += fmt::format("?{}", message.query);
  request.headers = std::move(headers);
  request.body = std::as_bytes(std::span(message.body.data(), message.body.size()));
  request.total_timeout = kAnswerTimeout;
  request.stop = stop;
  YARD_ASSIGN(HttpResponse response, http_->send(std::move(request)));
  if (response.status / 100 == 2) return std::move(response.body);
  return error_of_answer(message.what, response.status, response.body);
}

Result<std::string> AwsClient::send(const Message& message, const StopToken& stop) const {
  const auto begin = clock_.now();
  std::chrono::milliseconds pause = kFirstPause;
  for (;;) {
    auto answer = send_once(message, stop);
    const bool may_help = !answer && (answer.error().code == Code::kUnavailable ||
                                      answer.error().code == Code::kDeadlineExceeded);
    if (!may_help || clock_.now() - begin + pause > patience_) return answer;
    if (!clock_.sleep_for(pause, stop)) return Error{Code::kCancelled, "stopped"};
    pause = std::min(pause * 2, kPauseMax);
  }
}

Result<Json> AwsClient::call(const JsonService& service, std::string_view operation,
                             const Json& input, const StopToken& stop) const {
  const std::string body = input.dump(-1, ' ', false, Json::error_handler_t::replace);
  Message message{.what = operation,
                  .method = "POST",
                  .service = service.signing_name,
                  .path = "/",
                  .query = "",
                  .body = body,
                  .headers = {}};
  message.headers.set("content-type",
                      fmt::format("application/x-amz-json-{}", service.json_version));
  message.headers.set("x-amz-target", fmt::format("{}.{}", service.target_prefix, operation));
  YARD_ASSIGN(const std::string answer, send(message, stop));
  if (answer.empty()) return Json::object();
  return parse_json(answer, operation);
}

Result<std::string> AwsClient::s3(std::string_view method, std::string_view path,
                                  std::string_view query, std::string_view body,
                                  const StopToken& stop) const {
  const std::string what = fmt::format("{} {}?{}", method, path, query);
  return send({.what = what,
               .method = method,
               .service = "s3",
               .path = std::string(path),
               .query = query,
               .body = body,
               .headers = {}},
              stop);
}

}  // namespace yard::aws
