#include "platform_client.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <span>

#include "base/file.h"
#include "endpoint.h"
#include "net/checksums.h"

namespace yard::app {
namespace {

constexpr std::chrono::seconds kAnswerWait{60};

Result<ServedAt> parse_served_at(const std::string& text, const std::string& what) {
  YARD_ASSIGN(const Json json, parse_json(text, what));
  return served_at_from_json(json, what);
}

std::string variable_of(const Context& context, const char* name) {
  const auto found = context.env.find(name);
  return found == context.env.end() ? "" : found->second;
}

// A platform on another machine, as its owner's `yard env` described it.
Result<std::pair<ServedAt, Credentials>> platform_of_environment(const Context& context) {
  ServedAt served{.url = variable_of(context, "AWS_ENDPOINT_URL"),
                  .region = variable_of(context, "AWS_REGION"),
                  .account_id = "",
                  .store_url = "",
                  .ca_bundle_path = variable_of(context, "AWS_CA_BUNDLE")};
  Credentials credentials{variable_of(context, "AWS_ACCESS_KEY_ID"),
                          variable_of(context, "AWS_SECRET_ACCESS_KEY"), ""};
  if (served.url.empty() || credentials.access_key.empty() || credentials.secret_key.empty())
    return Error{Code::kNotFound,
                 "'yard serve' has not run with this YARD_HOME yet, and the environment names no "
                 "other with AWS_ENDPOINT_URL and a key"};
  if (served.region.empty()) served.region = "us-east-1";
  return std::pair(std::move(served), std::move(credentials));
}

Code code_of_answer(int status, std::string_view name, std::string_view message) {
  if (status >= 500 || name == "ThrottlingException") return Code::kUnavailable;
  const bool is_missing =
      name.find("NotFound") != name.npos || message.starts_with("Could not find");
  return is_missing ? Code::kNotFound : Code::kInvalidArgument;
}

Error error_of_answer(const HttpResponse& answer) {
  const auto json = parse_json(answer.body, "answer");
  const bool is_told = json && json->is_object();
  const std::string name = is_told ? json->value("__type", "") : "";
  const std::string message =
      is_told ? json->value("message", "") : fmt::format("status {}", answer.status);
  return {code_of_answer(answer.status, name, message),
          name.empty() ? message : fmt::format("{}: {}", name, message)};
}

}  // namespace

Result<ServedAt> find_platform(const PlatformHome& home, const Context& context) {
  const std::string path = home.serve_json();
  const auto url_of = [&path](const std::string& text) {
    const auto served = parse_served_at(text, path);
    return served ? served->url : "";
  };
  auto text = wait_for_server(path, url_of, "'yard serve' starts the platform", context.stop);
  if (!text && text.error().code == Code::kNotFound)
    return std::move(text).error().while_("'yard serve' has not run with this YARD_HOME yet");
  if (!text) return std::move(text).error();
  return parse_served_at(*text, path);
}

Result<api::User> find_user(const PlatformHome& home, const std::string& name) {
  YARD_ASSIGN(const std::vector<api::User> users, api::Users::load(home.users()));
  for (const api::User& user : users)
    if (user.name == name) return user;
  return Error{Code::kNotFound, "no user '" + name + "'; 'yard users list' names them"};
}

PlatformClient::PlatformClient(ServedAt served, Credentials credentials)
    : served_(std::move(served)), credentials_(std::move(credentials)) {
  HttpClientOptions options;
  options.ca_path = served_.ca_bundle_path;
  http_ = std::make_unique<HttpClient>(options);
}

Result<PlatformClient> PlatformClient::open(const Context& context, const std::string& user) {
  const PlatformHome home = platform_home(context.yard_home);
  std::error_code error;
  if (!std::filesystem::exists(home.serve_json(), error)) {
    YARD_ASSIGN(auto found, platform_of_environment(context));
    return PlatformClient(std::move(found.first), std::move(found.second));
  }
  YARD_ASSIGN(ServedAt served, find_platform(home, context));
  YARD_ASSIGN(const api::User who,
              find_user(home, user.empty() ? std::string(api::kFirstUser) : user));
  return PlatformClient(std::move(served), who.credentials);
}

Result<Json> PlatformClient::call(std::string_view target, const Json& input) {
  const bool is_ours = target.starts_with("Trainyard.");
  const std::string_view service = is_ours                       ? "trainyard"
                                   : target.starts_with("Logs_") ? "logs"
                                                                 : "sagemaker";
  const std::string body = input.dump(-1, ' ', false, Json::error_handler_t::replace);
  HttpRequest request{.method = "POST", .url = served_.url + "/"};
  request.headers.set("host", served_.url.substr(served_.url.find("//") + 2));
  request.headers.set("content-type", "application/x-amz-json-1.1");
  request.headers.set("x-amz-target", target);
  const Signer signer(served_.region, std::string(service), Clock::real());
  const auto done =
      signer.sign({request.method, "/", "", request.headers}, credentials_, sha256_hex(body));
  for (const auto& [name, value] : done.headers) request.headers.add(name, value);
  request.body = std::as_bytes(std::span(body.data(), body.size()));
  request.total_timeout = kAnswerWait;
  YARD_ASSIGN(const HttpResponse answer, http_->send(std::move(request)));
  if (answer.status != 200) return error_of_answer(answer);
  if (answer.body.empty()) return Json(Json::object());
  return parse_json(answer.body, fmt::format("{} of {}", target, served_.url));
}

}  // namespace yard::app
