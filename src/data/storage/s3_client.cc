#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <condition_variable>
#include <mutex>

#include "base/ids.h"
#include "base/log.h"
#include "net/encoding.h"
#include "storage/request_deadline.h"
#include "storage/s3_client_internal.h"

namespace yard::storage {
namespace {

using namespace std::chrono_literals;

constexpr auto kSkewMax = 4min;  // S3 refuses from 15; a refusal with less has another reason
constexpr auto kRetryAfterMax = 60s;
constexpr auto kCleanupTimeout = 3s;
constexpr int kCleanupAttempts = 2;
constexpr size_t kMessageBytesMax = 500;
constexpr auto kTellInterval = 10s;

bool is_loopback(std::string_view authority) {
  return authority.starts_with("127.") || authority.starts_with("localhost") ||
         authority.starts_with("[::1]");
}

// In [0, 1), from the kernel: two clients that failed together must not wait alike.
double random_fraction() {
  constexpr double kDigits = 36;
  double fraction = 0;
  for (const char c : random_name(8))
    fraction = (fraction + (c <= '9' ? c - '0' : c - 'a' + 10)) / kDigits;
  return fraction;
}

std::optional<std::chrono::milliseconds> retry_after(const HttpResponse& response) {
  const auto value = response.headers.find("Retry-After");
  if (!value) return std::nullopt;
  int64_t seconds = 0;
  const auto parsed = std::from_chars(value->data(), value->data() + value->size(), seconds);
  if (parsed.ec != std::errc() || parsed.ptr != value->data() + value->size()) return std::nullopt;
  return std::clamp<std::chrono::milliseconds>(std::chrono::seconds(seconds), 0s, kRetryAfterMax);
}

bool is_success(int status) {
  return status >= 200 && status < 300;
}

std::string aws_code(const HttpResponse& response) {
  auto error = s3_xml::parse_error(response.body);
  return error ? std::move(error->code) : std::string();
}

Code code_of(int status, std::string_view aws_code) {
  if (aws_code == "SlowDown" || aws_code == "InternalError" || aws_code == "ServiceUnavailable" ||
      aws_code == "RequestTimeout")
    return Code::kUnavailable;
  if (aws_code == "BadDigest" || aws_code == "IncompleteBody") return Code::kCorrupt;
  switch (status) {
    case 404:
      return Code::kNotFound;
    case 408:
    case 504:
      return Code::kDeadlineExceeded;
    case 507:
      return Code::kExhausted;
    default:
      return status >= 500 || status == 429 ? Code::kUnavailable : Code::kInvalidArgument;
  }
}

std::string host_of(const S3Endpoint& endpoint) {
  return fmt::format("{}://{}", endpoint.scheme, endpoint.authority);
}

}  // namespace

std::string s3_name(std::string_view bucket, std::string_view key) {
  return fmt::format("s3://{}{}{}", bucket, key.empty() ? "" : "/", key);
}

Result<std::unique_ptr<S3Client>> S3Client::open(S3Options options, Clock& clock) {
  YARD_CHECK(is_crc(options.upload_checksum));
  AwsSettings settings;
  if (!options.anonymous && !options.credentials) {
    YARD_ASSIGN(settings, load_aws_settings(options.environment, options.profile));
  } else {
    // Keys are given; region and endpoint may still be the environment's.
    auto loaded = load_aws_settings(options.environment, options.profile);
    if (loaded) settings = *std::move(loaded);
  }
  if (options.region.empty()) options.region = settings.region;
  if (options.region.empty()) options.region = "us-east-1";
  if (options.endpoint.empty()) options.endpoint = settings.endpoint_url;
  if (options.http.ca_path.empty()) options.http.ca_path = settings.ca_bundle;
  YARD_ASSIGN(S3Endpoint endpoint, parse_s3_endpoint(options.endpoint, options.region));
  if (options.credentials) settings.credentials = options.credentials;
  auto client =
      std::unique_ptr<S3Client>(new S3Client(std::move(options), std::move(endpoint), clock));
  if (!client->options_.anonymous)
    client->credentials_ =
        default_credentials(settings, client->options_.environment, client->http_, client->clock_);
  return client;
}

S3Client::S3Client(S3Options options, S3Endpoint endpoint, Clock& clock)
    : options_(std::move(options)),
      endpoint_(std::move(endpoint)),
      endpoint_url_(host_of(endpoint_)),
      clock_(clock),
      http_(options_.http),
      signer_(options_.region, "s3", clock_),
      retry_budget_(options_.retry),
      is_local_(is_loopback(endpoint_.authority)),
      hedge_budget_(options_.hedge.percent_max),
      upload_memory_(options_.upload_memory_bytes),
      part_queue_(options_.part_count_at_once) {}

S3Client::~S3Client() = default;

Status S3Client::check_credentials() {
  if (credentials_) YARD_TRY(credentials_->get());
  return Ok{};
}

StoreSpeed S3Client::speed() const {
  StoreSpeed speed = meter_.speed();
  speed.is_remote = true;
  return speed;
}

void S3Client::note(const HttpResponse& response) {
  meter_.note(response.first_byte_time, response.total_time, response.body_bytes,
              response.reused_connection);
}

// ---- one attempt

bool S3Client::signs_bodies() const {
  return options_.body_signing == S3BodySigning::kAlways ||
         (options_.body_signing == S3BodySigning::kAuto && endpoint_.scheme == "http" &&
          !is_loopback(endpoint_.authority));
}

std::string S3Client::payload_of(const S3Request& request) const {
  YARD_CHECK(!request.body_reader || !signs_bodies());
  if (request.body_reader)
    return std::string(request.has_trailer ? kStreamingUnsignedPayloadTrailer : kUnsignedPayload);
  if (!request.body || request.body->empty()) return std::string(kEmptyPayloadSha256);
  return signs_bodies() ? hex_encode(sha256(*request.body)) : std::string(kUnsignedPayload);
}

// How long a silent server is waited for: the time-out, or what is left to this thread.
std::chrono::milliseconds S3Client::patience(std::chrono::milliseconds timeout) const {
  const Clock::Monotonic end = RequestDeadline::current();
  if (end == Clock::Monotonic::max()) return timeout;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - clock_.now());
  return std::min(timeout,
                  std::max<std::chrono::milliseconds>(left, RequestDeadline::kRequestTimeMin));
}

HttpRequest S3Client::make(const S3Request& request, const Credentials* credentials,
                           std::string_view payload, const RefusalPointer& refusal) const {
  const S3Address address = s3_address(endpoint_, options_.style, request.bucket, request.key);
  const std::string raw_query = format_query(request.query);
  Headers headers = request.headers;
  headers.set("Host", address.host);
  if (credentials != nullptr) {
    const auto signed_parts =
        signer_.sign({request.method, address.raw_path, raw_query, headers}, *credentials, payload);
    for (const auto field : signed_parts.headers) headers.add(field.name, field.value);
  }
  HttpRequest http{
      .method = request.method,
      .url = address.url(raw_query),
      .headers = std::move(headers),
      .body = request.body,
      .into = request.into,
      .body_bytes_max = request.answer_bytes_max,
      .connect_timeout = patience(options_.connect_timeout),
      .low_speed_time = std::chrono::ceil<std::chrono::seconds>(
          patience(request.is_commit ? options_.stall_timeout_of_commit : options_.stall_timeout))};
  if (request.is_cleanup)
    http.total_timeout = kCleanupTimeout;
  else
    http.stop = options_.stop;
  if (request.body_reader) {
    http.body_reader = [&read = request.body_reader, refusal](
                           uint64_t offset, std::span<std::byte> into) -> Result<size_t> {
      auto filled = read(offset, into);
      if (filled) return into.size();
      *refusal = filled.error();
      return std::move(filled).error();
    };
    http.body_reader_bytes = request.body_reader_bytes;
  }
  if (request.check_head)
    http.on_head = [check = request.check_head, refusal](const ResponseHead& head) -> Status {
      if (!is_success(head.status)) return Ok{};
      auto checked = check(head);
      if (!checked) *refusal = checked.error();
      return checked;
    };
  if (request.sink != nullptr)
    http.sink = [sink = request.sink, left = request.sink_bytes, position = uint64_t{0},
                 refusal](std::span<const std::byte> bytes) mutable {
      const Status taken =
          bytes.size() <= left
              ? (*sink)(position, bytes)
              : Error{Code::kCorrupt,
                      fmt::format("the body is longer than {} bytes", position + left)};
      position += bytes.size();
      left -= std::min<uint64_t>(left, bytes.size());
      if (taken) return SinkReply::kTaken;
      *refusal = taken.error();
      return SinkReply::kAbort;
    };
  return http;
}

// What an S3Request::sink got must be all; HttpRequest::into is checked by the HttpClient.
Result<HttpResponse> S3Client::checked(const S3Request& request, Result<HttpResponse> result) {
  if (request.sink == nullptr || !result || !is_success(result->status) ||
      result->body_bytes == request.sink_bytes)
    return result;
  return Error{Code::kCorrupt, fmt::format("the response has {} bytes, not {}", result->body_bytes,
                                           request.sink_bytes)};
}

S3Client::Attempt S3Client::try_once(const S3Request& request, const Credentials* credentials,
                                     std::string_view payload) {
  const auto refusal = std::make_shared<std::optional<Error>>();
  auto result = http_.send(make(request, credentials, payload, refusal));
  return {checked(request, std::move(result)), std::move(*refusal)};
}

// Two requests for the same bytes; whoever ends well first is taken.
struct S3Client::Race {
  std::mutex mutex;
  std::condition_variable changed;
  std::optional<Result<HttpResponse>> results[2];

  static bool is_good(const std::optional<Result<HttpResponse>>& result) {
    return result && *result && is_success((*result)->status);
  }
  HttpClient::Completion completion_of(int runner, const S3Request& request,
                                       const std::shared_ptr<Race>& self) {
    return [runner, &request, self](Result<HttpResponse> got) {
      // The second comes into a buffer, which is checked already.
      Result<HttpResponse> result = runner == 0 ? checked(request, std::move(got)) : std::move(got);
      const std::lock_guard lock(self->mutex);
      self->results[runner].emplace(std::move(result));
      self->changed.notify_all();
    };
  }
};

S3Client::Attempt S3Client::try_hedged(const S3Request& request, const Credentials* credentials,
                                       std::string_view payload) {
  hedge_budget_.note_request();
  const size_t size_bytes = request.into ? request.into->size() : request.sink_bytes;
  const auto expected = meter_.expected(size_bytes);
  if (!options_.hedge.enabled || expected.count() == 0)
    return try_once(request, credentials, payload);
  const auto delay = std::max<std::chrono::microseconds>(
      options_.hedge.delay_min,
      std::chrono::microseconds(
          static_cast<int64_t>(static_cast<double>(expected.count()) * options_.hedge.slowness)));
  const auto race = std::make_shared<Race>();
  const RefusalPointer refusals[2] = {std::make_shared<std::optional<Error>>(),
                                      std::make_shared<std::optional<Error>>()};
  std::unique_ptr<std::byte[]> second_bytes;  // outlives the transfer that fills it
  Transfer transfers[2];
  transfers[0] = http_.start(make(request, credentials, payload, refusals[0]),
                             race->completion_of(0, request, race));
  std::unique_lock lock(race->mutex);
  race->changed.wait_for(lock, delay, [&] { return race->results[0].has_value(); });
  const bool is_doubled = !race->results[0] && hedge_budget_.take();
  if (is_doubled) {
    lock.unlock();
    second_bytes = std::make_unique_for_overwrite<std::byte[]>(size_bytes);
    HttpRequest second = make(request, credentials, payload, refusals[1]);
    second.into = std::span(second_bytes.get(), size_bytes);
    second.sink = nullptr;
    transfers[1] = http_.start(std::move(second), race->completion_of(1, request, race));
    lock.lock();
  }
  race->changed.wait(lock, [&] {
    return Race::is_good(race->results[0]) || Race::is_good(race->results[1]) ||
           (race->results[0] && (!is_doubled || race->results[1]));
  });
  const int winner = Race::is_good(race->results[1]) && !Race::is_good(race->results[0]) ? 1 : 0;
  Result<HttpResponse> result = std::move(*race->results[winner]);
  lock.unlock();
  // The loser must not write any more when the winner's bytes go to the same place.
  transfers[1 - winner] = Transfer();
  if (winner == 1 && request.into)
    std::ranges::copy_n(second_bytes.get(), size_bytes, request.into->data());
  if (winner == 1 && request.sink != nullptr) {
    auto taken = (*request.sink)(0, std::span(second_bytes.get(), size_bytes));
    if (!taken) *refusals[1] = std::move(taken).error();
  }
  return {std::move(result), std::move(*refusals[winner])};
}

// ---- until it is final

S3Client::Next S3Client::judge_status(const HttpResponse& response) const {
  const int status = response.status;
  const std::string code = aws_code(response);
  if (code == "RequestTimeTooSkewed") return Next::kFixClock;
  if (code == "ExpiredToken" || code == "ExpiredTokenException") return Next::kRenewCredentials;
  if (status == 403 && response.body.empty()) return Next::kFixClock;  // HEAD; if the clock is off
  if (status == 408 || status == 429 || status == 500 || status == 502 || status == 503 ||
      status == 504)
    return Next::kRetry;
  // A body that was broken on its way; a socket that S3 gave up; two writers at once.
  for (const std::string_view again : {"RequestTimeout", "BadDigest", "IncompleteBody", "SlowDown",
                                       "ConditionalRequestConflict", "OperationAborted"})
    if (code == again) return Next::kRetry;
  return Next::kDone;
}

S3Client::Next S3Client::judge(const S3Request& request, Attempt& attempt) const {
  if (attempt.refusal) return Next::kDone;
  if (!attempt.result) {
    const Code code = attempt.result.error().code;
    // kCorrupt here is a body of another length or no HTTP at all.
    return code == Code::kUnavailable || code == Code::kDeadlineExceeded || code == Code::kCorrupt
               ? Next::kRetry
               : Next::kDone;
  }
  if (!is_success(attempt.result->status)) return judge_status(*attempt.result);
  if (!request.check_body) return Next::kDone;
  const std::span<const std::byte> content =
      request.into ? std::span<const std::byte>(*request.into) : bytes_of(attempt.result->body);
  auto checked = request.check_body(*attempt.result, content);
  if (checked) return Next::kDone;
  const Code code = checked.error().code;
  attempt.result = std::move(checked).error();
  return code == Code::kUnavailable || code == Code::kCorrupt ? Next::kRetry : Next::kDone;
}

bool S3Client::wait_before_retry(const S3Request& request, const Attempt& attempt, int retry) {
  const bool is_timeout = !attempt.result && attempt.result.error().code == Code::kDeadlineExceeded;
  if (!retry_budget_.take(is_timeout)) return false;
  auto delay = retry_delay(options_.retry, retry, random_fraction());
  if (attempt.result) delay = std::max(delay, retry_after(*attempt.result).value_or(0ms));
  // Who has no time for that wait decides what else to do with it.
  if (!request.is_cleanup && delay >= RequestDeadline::current() - clock_.now()) return false;
  // One failure alone is soon made good; a silent server has kept the caller waiting already.
  if (is_timeout || retry > 0) tell_of_retry(request, attempt);
  return clock_.sleep_for(delay, request.is_cleanup ? StopToken() : options_.stop);
}

// Nobody should have to guess what is waited for; nor read the same with each of many requests.
void S3Client::tell_of_retry(const S3Request& request, const Attempt& attempt) {
  {
    const std::lock_guard lock(told_mutex_);
    const auto now = clock_.now();
    if (told_at_ && now - *told_at_ < kTellInterval) return;
    told_at_ = now;
  }
  const Error error =
      attempt.result ? error_of(request, *attempt.result)
                     : Error(attempt.result.error()).while_(s3_name(request.bucket, request.key));
  log_warning("{}; asking again", error.message);
}

int S3Client::attempts_max(const S3Request& request) const {
  if (request.is_cleanup) return kCleanupAttempts;
  const int attempts_max = options_.retry.attempts_max;
  const bool is_unknown = is_local_ && !has_answered_;
  return is_unknown ? std::min(options_.local_attempts_max, attempts_max) : attempts_max;
}

Error S3Client::unanswered(Error error) const {
  if (is_local_ && error.code == Code::kUnavailable)
    error.message += options_.local_advice.unreachable;
  return error;
}

Result<HttpResponse> S3Client::send(const S3Request& request) {
  const std::string payload = payload_of(request);
  const std::string name = s3_name(request.bucket, request.key);
  bool fixed_clock = false, renewed_credentials = false;
  int retry_count = 0;
  for (;;) {
    if (!request.is_cleanup && options_.stop.stopped())
      return Error{Code::kCancelled, name + ": stopped"};
    std::optional<Credentials> credentials;
    if (credentials_) {
      YARD_ASSIGN(credentials, credentials_->get());
    }
    const Credentials* signer = credentials ? &*credentials : nullptr;
    Attempt attempt = request.may_hedge ? try_hedged(request, signer, payload)
                                        : try_once(request, signer, payload);
    if (attempt.result) has_answered_ = true;
    Next next = judge(request, attempt);
    if (next == Next::kFixClock) {
      const auto date = parse_http_date(attempt.result->headers.value_or("Date", ""));
      const bool is_off =
          date && std::chrono::abs(*date - clock_.wall_now()) > kSkewMax && !fixed_clock;
      if (is_off) clock_.correct(*date);
      fixed_clock = true;
      if (is_off) continue;
      next = Next::kDone;
    }
    if (next == Next::kRenewCredentials) {
      if (credentials && !renewed_credentials) {
        credentials_->refuse(*credentials);
        renewed_credentials = true;
        continue;
      }
      next = Next::kDone;
    }
    if (next == Next::kRetry && retry_count + 1 < attempts_max(request) &&
        wait_before_retry(request, attempt, retry_count)) {
      ++retry_count;
      continue;
    }
    if (attempt.refusal) return *std::move(attempt.refusal);
    if (!attempt.result) return unanswered(std::move(attempt.result).error().while_(name));
    if (is_success(attempt.result->status)) {
      retry_budget_.give();
      note(*attempt.result);
    }
    return std::move(attempt.result);
  }
}

Result<HttpResponse> S3Client::expect(const S3Request& request) {
  YARD_ASSIGN(HttpResponse response, send(request));
  if (!is_success(response.status)) return error_of(request, response);
  return response;
}

Error S3Client::error_of(const S3Request& request, const HttpResponse& response) const {
  const auto body = s3_xml::parse_error(response.body).value_or(s3_xml::ErrorBody{});
  const std::string name = s3_name(request.bucket, request.key);
  std::string region(response.headers.value_or("x-amz-bucket-region", body.region));
  if ((response.status == 301 || response.status == 307 || response.status == 400) &&
      !region.empty() && region != options_.region)
    return {Code::kInvalidArgument,
            fmt::format("{}: the bucket is in region {}, not in {}: set AWS_REGION={}", name,
                        region, options_.region, region)};
  std::string what = body.code.empty() ? std::string(status_reason(response.status))
                                       : fmt::format("{}: {}", body.code,
                                                     body.message.substr(0, kMessageBytesMax));
  // The answer to a HEAD has no body that could name the reason.
  const bool are_keys_refused = body.code == "InvalidAccessKeyId" ||
                                body.code == "SignatureDoesNotMatch" ||
                                (response.status == 403 && body.code.empty());
  return {code_of(response.status, body.code),
          fmt::format("{}: {} ({} from {}){}", name, what, response.status, endpoint_url_,
                      is_local_ && are_keys_refused ? options_.local_advice.refused_keys : "")};
}

}  // namespace yard::storage
