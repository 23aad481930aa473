#include "api/api_front.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>

#include "api/auth_error.h"
#include "api/query_form.h"
#include "api/rate_limit.h"
#include "api/validate.h"
#include "api/wire_route.h"
#include "base/ids.h"
#include "base/log.h"
#include "net/checksums.h"

namespace yard::api {
namespace {

constexpr double kBurstSeconds = 2;

// The form of AWS's: 8-4-4-4-12 hexadecimal digits. Unique as long as the process lives.
std::string next_request_id() {
  static const uint64_t start = std::hash<std::string>()(random_name(16));
  static std::atomic<uint64_t> count = 0;
  const uint64_t number = count.fetch_add(1, std::memory_order_relaxed);
  return fmt::format("{:08x}-{:04x}-4{:03x}-8{:03x}-{:012x}", uint32_t(start >> 32),
                     uint16_t(start >> 16), start & 0xfff, (number >> 48) & 0xfff,
                     number & 0xffffffffffff);
}

// One request of a service, as far as it has come.
struct Exchange {
  Exchange(Request& request, ResponseWriter& response) : request(request), response(response) {}

  Request& request;
  ResponseWriter& response;
  WireRoute route;
  const std::string request_id = next_request_id();
  Service* service = nullptr;
  std::string operation;
  Caller caller;
  std::string region;
  std::string resource;
};

std::string query_operation(const std::vector<QueryPair>& form) {
  const auto found = std::ranges::find(form, "Action", &QueryPair::name);
  return found == form.end() ? "" : found->value;
}

AwsStatus check_payload(const VerifiedRequest& verified, const std::string& body_sha256) {
  const bool is_signed = verified.payload == PayloadKind::kSha256;
  if (is_signed && !verified.payload_sha256.empty() && verified.payload_sha256 != body_sha256)
    return AwsError("InvalidSignatureException",
                    "The body does not have the SHA-256 that was signed.", 403);
  if (!is_signed && verified.payload != PayloadKind::kUnsigned)
    return AwsError("InvalidSignatureException", "A chunked body is only known to S3.", 403);
  return Ok{};
}

}  // namespace

struct ApiFront::Impl {
  Impl(ApiOptions given, const Clock& clock)
      : options(std::move(given)),
        clock(clock),
        verifier(
            {}, [this](std::string_view key) { return credentials_of(key); }, clock),
        rates(options.requests_per_second, options.requests_per_second * kBurstSeconds, clock) {}

  std::optional<Credentials> credentials_of(std::string_view access_key) const {
    auto user = options.users->by_key(access_key);
    if (!user) return std::nullopt;
    return std::move(user->credentials);
  }

  void handle(Request& request, ResponseWriter& response) {
    WireRoute route =
        route_of(request.method(), request.path(), request.query(), request.headers());
    if (route.form == WireForm::kS3) return handle_store(request, response);
    Exchange exchange(request, response);
    exchange.route = std::move(route);
    exchange.service = service_of(exchange.route);
    answer(exchange);
  }

  void handle_store(Request& request, ResponseWriter& response) const {
    if (options.store_is_broken && options.store_is_broken())
      return send_store_error(response, 503, "ServiceUnavailable", "Broken on purpose.");
    if (options.store != nullptr) return options.store->handle(request, response);
    send_store_error(response, 404, "NoSuchBucket", "This server holds no objects.");
  }

  static void send_store_error(ResponseWriter& response, int status, std::string_view code,
                               std::string_view message) {
    response.headers().set("Content-Type", "application/xml");
    (void)response.send(status,
                        fmt::format("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>{}"
                                    "</Code><Message>{}</Message></Error>",
                                    code, message));
  }

  Service* service_of(const WireRoute& route) const {
    for (const auto& service : options.services) {
      const Model& model = service->model();
      if (route.form == WireForm::kJson
              ? !model.target_prefix().empty() && model.target_prefix() == route.service
              : model.service() == route.service)
        return service.get();
    }
    return nullptr;
  }

  void answer(Exchange& exchange) {
    AwsResult<Json> done = served(exchange);
    const bool is_change = exchange.service != nullptr && !exchange.operation.empty() &&
                           exchange.service->needed_role(exchange.operation) != Role::kRead;
    if (is_change) audit(exchange, done ? "ok" : done.error().code);
    if (!done && !done.error().log_message.empty())
      log_error("{} {}: {}", exchange.operation, exchange.request_id, done.error().log_message);
    if (exchange.route.form == WireForm::kJson)
      send_json(exchange, done);
    else
      send_xml(exchange, done);
  }

  AwsResult<Json> served(Exchange& exchange) {
    auto body = exchange.request.read_all(options.body_bytes_max);
    if (!body && body.error().code == Code::kExhausted)
      return AwsError("RequestEntityTooLarge",
                      fmt::format("The request is larger than {} bytes.", options.body_bytes_max),
                      413);
    if (!body) return std::move(body).error();
    YARD_TRY(authenticate(exchange, *body));
    if (!rates.admits(exchange.caller.access_key))
      return AwsError("ThrottlingException", "Rate exceeded");
    YARD_ASSIGN(Json input, input_of(exchange, *body));
    return call(exchange, std::move(input));
  }

  AwsStatus authenticate(Exchange& exchange, const std::string& body) const {
    const Request& request = exchange.request;
    const std::string body_sha256 = sha256_hex(body);
    const auto verified = verifier.verify(
        {request.method(), request.path(), request.query(), request.headers()}, body_sha256);
    const bool is_json = exchange.route.form == WireForm::kJson;
    if (const auto* refused = std::get_if<AuthError>(&verified))
      return is_json ? json_auth_error(*refused) : query_auth_error(*refused);
    const auto& good = std::get<VerifiedRequest>(verified);
    YARD_TRY(check_payload(good, body_sha256));
    if (exchange.service != nullptr && good.service != exchange.service->model().service())
      return AwsError(is_json ? "InvalidSignatureException" : "SignatureDoesNotMatch",
                      fmt::format("Credential should be scoped to correct service: '{}'.",
                                  exchange.service->model().service()),
                      403);
    auto user = options.users->by_key(good.access_key);
    if (!user) return AwsError("UnrecognizedClientException", "The user is gone.", 403);
    exchange.caller = {std::move(user->name), good.access_key, user->role};
    exchange.region = good.region;
    return Ok{};
  }

  static AwsResult<Json> input_of(Exchange& exchange, const std::string& body) {
    if (exchange.route.form == WireForm::kJson) {
      exchange.operation = exchange.route.operation;
      YARD_TRY(check_operation(exchange));
      return parse_request_json(body);
    }
    const bool in_query = body.empty() && !exchange.request.query().empty();
    YARD_ASSIGN(const auto form, parse_form(in_query ? exchange.request.query() : body));
    exchange.operation = query_operation(form);
    YARD_TRY(check_operation(exchange));
    const OperationShapes* shapes = exchange.service->model().find(exchange.operation);
    if (shapes->input == nullptr) return Json(Json::object());
    return json_of_form(*shapes->input, form);
  }

  static AwsStatus check_operation(Exchange& exchange) {
    const bool is_known = exchange.service != nullptr && exchange.route.form != WireForm::kRest &&
                          exchange.service->model().find(exchange.operation) != nullptr;
    if (is_known) return Ok{};
    const std::string name = std::exchange(exchange.operation, "");
    if (exchange.route.form == WireForm::kJson)
      return AwsError("UnknownOperationException",
                      fmt::format("'{}.{}' is not served here.", exchange.route.service, name));
    return AwsError("InvalidAction",
                    fmt::format("'{}' of '{}' is not served here.", name, exchange.route.service));
  }

  AwsResult<Json> call(Exchange& exchange, Json input) {
    const OperationShapes* shapes = exchange.service->model().find(exchange.operation);
    Call call{.operation = exchange.operation,
              .input = std::move(input),
              .caller = exchange.caller,
              .request_id = exchange.request_id,
              .endpoint = fmt::format("{}://{}", exchange.request.is_tls() ? "https" : "http",
                                      exchange.request.headers().value_or("host", "")),
              .region = exchange.region,
              .stop = exchange.request.stop_token()};
    if (shapes->input != nullptr) {
      YARD_ASSIGN(call.input, checked(exchange.service->model(), *shapes->input, call.input));
    }
    exchange.resource = exchange.service->resource_of(call);
    YARD_TRY(check_role(exchange));
    return exchange.service->call(call);
  }

  static AwsResult<Json> checked(const Model& model, const Shape& shape, const Json& input) {
    auto kept = checked_input(shape, input);
    if (kept || kept.error().code != "ValidationException") return kept;
    return AwsError(model.validation_code(), std::move(kept).error().message);
  }

  AwsStatus check_role(const Exchange& exchange) const {
    const Role needed = exchange.service->needed_role(exchange.operation);
    if (exchange.caller.role >= needed) return Ok{};
    const bool is_json = exchange.route.form == WireForm::kJson;
    return AwsError(
        is_json ? "AccessDeniedException" : "AccessDenied",
        fmt::format("User: arn:aws:iam::{}:user/{} is not authorized to perform: {}:{}; it needs "
                    "the role '{}' and has '{}'",
                    options.account_id, exchange.caller.user, exchange.service->model().service(),
                    exchange.operation, to_string(needed), to_string(exchange.caller.role)),
        is_json ? 400 : 403);
  }

  void audit(const Exchange& exchange, const std::string& outcome) const {
    if (options.audit == nullptr) return;
    options.audit->write({.user = exchange.caller.user,
                          .access_key = exchange.caller.access_key,
                          .address = std::string(exchange.request.peer_address()),
                          .service = exchange.service->model().service(),
                          .operation = exchange.operation,
                          .resource = exchange.resource,
                          .outcome = outcome,
                          .request_id = exchange.request_id});
  }

  static std::string_view content_type(const Exchange& exchange) {
    const bool is_1_0 = exchange.request.headers()
                            .value_or("content-type", "")
                            .starts_with("application/x-amz-json-1.0");
    return is_1_0 ? "application/x-amz-json-1.0" : "application/x-amz-json-1.1";
  }

  static void send_json(Exchange& exchange, const AwsResult<Json>& done) {
    Headers& headers = exchange.response.headers();
    headers.set("Content-Type", content_type(exchange));
    headers.set("x-amzn-RequestId", exchange.request_id);
    if (done) {
      const bool is_nothing = done->is_null();
      const std::string text =
          is_nothing ? "" : done->dump(-1, ' ', false, Json::error_handler_t::replace);
      (void)exchange.response.send(200, text);
      return;
    }
    const AwsError& error = done.error();
    headers.set("x-amzn-ErrorType", error.code);
    // Clients of an API that once spoke Query still look for its names.
    if (exchange.request.headers().contains("x-amzn-query-mode"))
      headers.set("x-amzn-query-error",
                  query_name(error) + (error.http_status < 500 ? ";Sender" : ";Receiver"));
    const Json body = {{"__type", error.code}, {"message", error.message}};
    (void)exchange.response.send(error.http_status,
                                 body.dump(-1, ' ', false, Json::error_handler_t::replace));
  }

  static void send_xml(Exchange& exchange, const AwsResult<Json>& done) {
    const Model* model = exchange.service == nullptr ? nullptr : &exchange.service->model();
    Headers& headers = exchange.response.headers();
    headers.set("Content-Type", "text/xml");
    headers.set("x-amzn-RequestId", exchange.request_id);
    if (done)
      (void)exchange.response.send(
          200, xml_of_answer(*model, exchange.operation, *done, exchange.request_id));
    else
      (void)exchange.response.send(done.error().http_status,
                                   xml_of_error(model, done.error(), exchange.request_id));
  }

  const ApiOptions options;
  const Clock& clock;
  SignatureVerifier verifier;
  RateLimit rates;
};

ApiFront::ApiFront(ApiOptions options, const Clock& clock)
    : impl_(std::make_unique<Impl>(std::move(options), clock)) {
  YARD_CHECK(impl_->options.users != nullptr);
}
ApiFront::~ApiFront() = default;

void ApiFront::handle(Request& request, ResponseWriter& response) {
  impl_->handle(request, response);
}

bool authorize_store(Users& users, AuditLog* audit, const gateway::StoreAccess& access) {
  const auto user = users.by_key(access.access_key);
  const bool may = user && (!access.changes || user->role >= Role::kSubmit);
  if (access.changes && audit != nullptr)
    audit->write({.user = user ? user->name : "",
                  .access_key = std::string(access.access_key),
                  .address = std::string(access.peer_address),
                  .service = "s3",
                  .operation = std::string(access.method),
                  .resource = std::string(access.raw_path),
                  .outcome = may ? "allowed" : "AccessDenied",
                  .request_id = std::string(access.request_id)});
  return may;
}

}  // namespace yard::api
