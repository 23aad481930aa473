#include <algorithm>
#include <charconv>
#include <cstring>

#include "net/curl_loop_internal.h"

namespace yard::net_internal {
namespace {

// Bodies up to here are copied, so that they leave in one packet with their head.
constexpr size_t kCopiedBodyBytes = 16 << 10;
constexpr size_t kBufferBytesMin = 16 << 10;

std::span<const std::byte> as_span(const char* text, size_t bytes) {
  return std::as_bytes(std::span(text, bytes));
}

Code code_of(CURLcode curl) {
  switch (curl) {
    case CURLE_OPERATION_TIMEDOUT:
      return Code::kDeadlineExceeded;
    case CURLE_URL_MALFORMAT:
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_CERTPROBLEM:
      return Code::kInvalidArgument;
    case CURLE_UNSUPPORTED_PROTOCOL:  // the URL was checked: HTTP/0.9, that is, not HTTP at all
    case CURLE_WEIRD_SERVER_REPLY:
    case CURLE_BAD_CONTENT_ENCODING:
      return Code::kCorrupt;
    case CURLE_OUT_OF_MEMORY:
      return Code::kExhausted;
    case CURLE_ABORTED_BY_CALLBACK:
      return Code::kCancelled;
    case CURLE_FAILED_INIT:
    case CURLE_BAD_FUNCTION_ARGUMENT:
    case CURLE_NOT_BUILT_IN:
    case CURLE_UNKNOWN_OPTION:
      return Code::kInternal;
    default:
      return Code::kUnavailable;  // name, connection, TLS handshake, reset, cut short
  }
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

long milliseconds_of(std::chrono::milliseconds time) {
  return static_cast<long>(time.count());
}

}  // namespace

std::string url_for_people(std::string_view url) {
  url = url.substr(0, url.find_first_of("?#"));
  const size_t host = url.find("://");
  if (host == std::string_view::npos) return std::string(url);
  const size_t path = std::min(url.find('/', host + 3), url.size());
  const size_t at = url.rfind('@', path);
  if (at == std::string_view::npos || at < host + 3) return std::string(url);
  return std::string(url.substr(0, host + 3)) + std::string(url.substr(at + 1));
}

TransferState::TransferState(HttpRequest request, HttpClient::Completion completion, CurlLoop& loop)
    : request_(std::move(request)), completion_(std::move(completion)), loop_(loop) {}

TransferState::~TransferState() {
  curl_slist_free_all(header_list_);
}

Error TransferState::named(Error error) const {
  error.message = request_.method + " " + url_for_people(request_.url) + ": " + error.message;
  return error;
}

bool TransferState::fail(Code code, std::string what) {
  failure_ = Error{code, std::move(what)};
  return false;
}

// ---- the request

Status TransferState::prepare(CURL* easy, const HttpClientOptions& options) {
  easy_ = easy;
  if (!is_header_name(request_.method))
    return named({Code::kInvalidArgument, "'" + request_.method + "' is no method"});
  if (!request_.url.starts_with("http://") && !request_.url.starts_with("https://"))
    return named({Code::kInvalidArgument, "not an http or https URL"});
  YARD_TRY(set_headers());
  curl_easy_setopt(easy, CURLOPT_PRIVATE, this);
  curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, curl_words_.data());
  curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(easy, CURLOPT_URL, request_.url.c_str());
  curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  curl_easy_setopt(easy, CURLOPT_PATH_AS_IS, 1L);
  curl_easy_setopt(easy, CURLOPT_PROXY, options.proxy.c_str());  // "": the environment's neither
  curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L);
  curl_easy_setopt(easy, CURLOPT_USERAGENT, options.user_agent.c_str());
  if (!options.ca_path.empty()) curl_easy_setopt(easy, CURLOPT_CAINFO, options.ca_path.c_str());
  curl_easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, options.verify_tls ? 1L : 0L);
  curl_easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, options.verify_tls ? 2L : 0L);
  const size_t wanted_bytes = request_.into ? request_.into->size() : options.receive_buffer_bytes;
  const size_t buffer_bytes = std::clamp(wanted_bytes, kBufferBytesMin,
                                         std::max(kBufferBytesMin, options.receive_buffer_bytes));
  curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, static_cast<long>(buffer_bytes));
  curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, milliseconds_of(request_.connect_timeout));
  curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, milliseconds_of(request_.total_timeout));
  curl_easy_setopt(easy, CURLOPT_LOW_SPEED_LIMIT,
                   static_cast<long>(request_.low_speed_bytes_per_second));
  curl_easy_setopt(easy, CURLOPT_LOW_SPEED_TIME,
                   static_cast<long>(request_.low_speed_time.count()));
  curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, &TransferState::on_header);
  curl_easy_setopt(easy, CURLOPT_HEADERDATA, this);
  curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, &TransferState::on_body);
  curl_easy_setopt(easy, CURLOPT_WRITEDATA, this);
  return set_body(options);
}

Status TransferState::set_body(const HttpClientOptions& options) {
  const bool is_write = request_.method == "POST" || request_.method == "PUT";
  const bool is_copied = !request_.body_reader && !request_.expect_continue &&
                         (request_.body ? request_.body->size() <= kCopiedBodyBytes : is_write);
  if (is_copied) {
    const size_t bytes = request_.body ? request_.body->size() : 0;
    curl_easy_setopt(easy_, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(bytes));
    curl_easy_setopt(easy_, CURLOPT_COPYPOSTFIELDS,
                     bytes == 0 ? "" : reinterpret_cast<const char*>(request_.body->data()));
  } else if (request_.body || request_.body_reader) {
    const uint64_t bytes =
        request_.body_reader ? request_.body_reader_bytes : request_.body->size();
    curl_easy_setopt(easy_, CURLOPT_UPLOAD, 1L);
    curl_easy_setopt(easy_, CURLOPT_INFILESIZE_LARGE, static_cast<curl_off_t>(bytes));
    curl_easy_setopt(
        easy_, CURLOPT_UPLOAD_BUFFERSIZE,
        static_cast<long>(std::clamp<uint64_t>(
            bytes, kBufferBytesMin, std::max(kBufferBytesMin, options.send_buffer_bytes))));
    curl_easy_setopt(easy_, CURLOPT_READFUNCTION, &TransferState::on_read);
    curl_easy_setopt(easy_, CURLOPT_READDATA, this);
    curl_easy_setopt(easy_, CURLOPT_SEEKFUNCTION, &TransferState::on_seek);
    curl_easy_setopt(easy_, CURLOPT_SEEKDATA, this);
  }
  if (request_.method == "HEAD")
    curl_easy_setopt(easy_, CURLOPT_NOBODY, 1L);
  else
    curl_easy_setopt(easy_, CURLOPT_CUSTOMREQUEST, request_.method.c_str());
  return Ok{};
}

bool TransferState::append_header(const std::string& line) {
  curl_slist* longer = curl_slist_append(header_list_, line.c_str());
  if (longer != nullptr) header_list_ = longer;
  return longer != nullptr;
}

Status TransferState::set_headers() {
  bool fits = append_header(request_.expect_continue ? "Expect: 100-continue" : "Expect:");
  for (const auto [name, value] : request_.headers) {
    if (!is_header_name(name) || !is_header_value(value) ||
        equals_ignoring_case(name, "Transfer-Encoding"))
      return named({Code::kInvalidArgument, "header '" + std::string(name) + "' cannot be sent"});
    if (equals_ignoring_case(name, "Content-Length") || equals_ignoring_case(name, "Expect"))
      continue;
    // curl's spelling of a header without value; "name:" would mean none at all.
    fits = fits &&
           append_header(trimmed(value).empty() ? std::string(name) + ";"
                                                : std::string(name) + ": " + std::string(value));
  }
  // Else curl calls every copied body a filled-in form.
  if (!request_.headers.contains("Content-Type")) fits = fits && append_header("Content-Type:");
  if (!fits) return named({Code::kExhausted, "no memory for the headers"});
  curl_easy_setopt(easy_, CURLOPT_HTTPHEADER, header_list_);
  return Ok{};
}

size_t TransferState::on_read(char* into, size_t size, size_t count, void* self) {
  auto& state = *static_cast<TransferState*>(self);
  if (state.abandoned_) return CURL_READFUNC_ABORT;
  const std::span<std::byte> space = std::as_writable_bytes(std::span(into, size * count));
  const HttpRequest& request = state.request_;
  const uint64_t total = request.body_reader ? request.body_reader_bytes : request.body->size();
  const size_t bytes_max = std::min<uint64_t>(space.size(), total - state.sent_bytes_);
  if (bytes_max == 0) return 0;
  if (!request.body_reader) {
    std::memcpy(into, request.body->data() + state.sent_bytes_, bytes_max);
    state.sent_bytes_ += bytes_max;
    return bytes_max;
  }
  auto bytes = request.body_reader(state.sent_bytes_, space.first(bytes_max));
  if (bytes && *bytes == 0) bytes = Error{Code::kCorrupt, "the body ended before its length"};
  if (!bytes) {
    state.failure_ = std::move(bytes).error();
    return CURL_READFUNC_ABORT;
  }
  YARD_CHECK(*bytes <= bytes_max);
  state.sent_bytes_ += *bytes;
  return *bytes;
}

int TransferState::on_seek(void* self, curl_off_t offset, int origin) {
  if (origin != SEEK_SET) return CURL_SEEKFUNC_CANTSEEK;
  static_cast<TransferState*>(self)->sent_bytes_ = static_cast<uint64_t>(offset);
  return CURL_SEEKFUNC_OK;
}

// ---- the response

size_t TransferState::on_header(char* text, size_t size, size_t count, void* self) {
  auto& state = *static_cast<TransferState*>(self);
  const size_t bytes = size * count;
  if (state.abandoned_) return 0;
  return state.header_line({text, bytes}) ? bytes : 0;
}

bool TransferState::header_line(std::string_view line) {
  if (head_done_) return true;  // a trailer
  if (line.starts_with("HTTP/")) {
    // A head may follow that of a "100 Continue".
    head_ = {};
    const size_t blank = std::min(line.find(' '), line.size());
    const std::string_view digits = trimmed(line.substr(blank)).substr(0, 3);
    std::from_chars(digits.data(), digits.data() + digits.size(), head_.status);
    return true;
  }
  const std::string_view field = trimmed(line);
  if (field.empty()) return head_.status < 200 || head_is_whole();
  const size_t colon = field.find(':');
  if (colon != std::string_view::npos)
    head_.headers.add(trimmed(field.substr(0, colon)), trimmed(field.substr(colon + 1)));
  return true;
}

bool TransferState::head_is_whole() {
  head_done_ = true;
  if (request_.on_head) {
    if (auto status = request_.on_head(head_); !status) {
      failure_ = std::move(status).error();
      return false;
    }
  }
  const auto length = head_.headers.find("Content-Length");
  if (!request_.into || !is_success() || !length || request_.method == "HEAD") return true;
  if (*length == std::to_string(request_.into->size())) return true;
  return fail(Code::kCorrupt, "the response has " + std::string(*length) + " bytes, not " +
                                  std::to_string(request_.into->size()));
}

size_t TransferState::on_body(char* text, size_t size, size_t count, void* self) {
  auto& state = *static_cast<TransferState*>(self);
  if (state.abandoned_) return 0;
  return state.take_body(as_span(text, size * count));
}

// Fewer than given ends the transfer.
size_t TransferState::take_body(std::span<const std::byte> bytes) {
  if (!is_success()) return keep_body(bytes, true);
  if (request_.sink) {
    switch (request_.sink(bytes)) {
      case SinkReply::kTaken:
        response_.body_bytes += bytes.size();
        return bytes.size();
      case SinkReply::kPause:
        return CURL_WRITEFUNC_PAUSE;
      case SinkReply::kAbort:
        fail(Code::kCancelled, "the receiver ended the transfer");
        return 0;
    }
  }
  if (!request_.into) return keep_body(bytes, false);
  if (bytes.size() > request_.into->size() - response_.body_bytes) {
    fail(Code::kCorrupt,
         "the response is longer than " + std::to_string(request_.into->size()) + " bytes");
    return 0;
  }
  std::memcpy(request_.into->data() + response_.body_bytes, bytes.data(), bytes.size());
  response_.body_bytes += bytes.size();
  return bytes.size();
}

size_t TransferState::keep_body(std::span<const std::byte> bytes, bool is_error_page) {
  const size_t space = request_.body_bytes_max - response_.body.size();
  if (bytes.size() > space && !is_error_page) {
    fail(Code::kExhausted,
         "the response is longer than " + std::to_string(request_.body_bytes_max) + " bytes");
    return 0;
  }
  response_.body.append(reinterpret_cast<const char*>(bytes.data()), std::min(bytes.size(), space));
  response_.body_bytes += bytes.size();
  return bytes.size();
}

Result<HttpResponse> TransferState::outcome(CURLcode code) {
  if (failure_) return named(*std::move(failure_));
  if (code != CURLE_OK) {
    const char* words = curl_words_[0] != '\0' ? curl_words_.data() : curl_easy_strerror(code);
    return named({code_of(code), words});
  }
  // curl takes a connection that closes inside the head for an empty response.
  if (!head_done_) return named({Code::kUnavailable, "the connection ended inside the head"});
  if (request_.into && is_success() && response_.body_bytes != request_.into->size())
    return named({Code::kCorrupt, "the response has " + std::to_string(response_.body_bytes) +
                                      " bytes, not " + std::to_string(request_.into->size())});
  curl_off_t first_byte_us = 0;
  curl_off_t total_us = 0;
  long connect_count = 0;
  curl_easy_getinfo(easy_, CURLINFO_STARTTRANSFER_TIME_T, &first_byte_us);
  curl_easy_getinfo(easy_, CURLINFO_TOTAL_TIME_T, &total_us);
  curl_easy_getinfo(easy_, CURLINFO_NUM_CONNECTS, &connect_count);
  response_.status = head_.status;
  response_.headers = std::move(head_.headers);
  response_.first_byte_time = std::chrono::microseconds(first_byte_us);
  response_.total_time = std::chrono::microseconds(total_us);
  response_.reused_connection = connect_count == 0;
  return std::move(response_);
}

// ---- the end

CURL* TransferState::take_easy() {
  return std::exchange(easy_, nullptr);
}

void TransferState::finish(Result<HttpResponse> result) {
  if (completion_ && !abandoned_) completion_(std::move(result));
  const std::lock_guard lock(mutex_);
  if (!completion_) result_ = std::move(result);
  done_ = true;
  changed_.notify_all();
}

bool TransferState::done() const {
  const std::lock_guard lock(mutex_);
  return done_;
}

void TransferState::wait_done() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return done_; });
}

Result<HttpResponse> TransferState::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return done_; });
  YARD_CHECK(result_.has_value());
  Result<HttpResponse> result = *std::move(result_);
  result_.reset();
  return result;
}

void TransferState::abandon() {
  abandoned_ = true;
}

}  // namespace yard::net_internal
