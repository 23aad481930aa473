#include "net/exchange_internal.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>

#include "base/log.h"
#include "telemetry/metric_names.h"

namespace yard::net_internal {
namespace {

constexpr size_t kInputBytesFirst = 4 << 10;
constexpr size_t kChunkedInputBytes = 64 << 10;
constexpr size_t kDiscardBytes = 16 << 10;

constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
constexpr std::string_view kLineEnd = "\r\n";

void count(Counter* counter, double amount) {
  if (counter != nullptr) counter->add(amount);
}

// The Date header's value. Made once per second and thread.
const std::string& date_now() {
  using std::chrono::floor, std::chrono::seconds, std::chrono::system_clock;
  thread_local std::chrono::sys_seconds made_at{};
  thread_local std::string text;
  const auto now = floor<seconds>(system_clock::now());
  if (text.empty() || now != made_at) {
    made_at = now;
    text = format_http_date(now);
  }
  return text;
}

bool is_servers_own(std::string_view name) {
  constexpr std::array<std::string_view, 4> kNames = {"Content-Length", "Transfer-Encoding",
                                                      "Connection", "Keep-Alive"};
  return std::ranges::any_of(kNames,
                             [&](std::string_view own) { return equals_ignoring_case(name, own); });
}

// Without the query, which may hold a signature.
std::string_view path_of(std::string_view target) {
  return target.substr(0, target.find('?'));
}

iovec piece_of(std::string_view text) {
  return {const_cast<char*>(text.data()), text.size()};
}

iovec piece_of(std::span<const std::byte> bytes) {
  return {const_cast<std::byte*>(bytes.data()), bytes.size()};
}

int status_of_read_error(Code code) {
  switch (code) {
    case Code::kDeadlineExceeded:
      return 408;
    case Code::kExhausted:
      return 413;
    default:
      return 400;
  }
}

}  // namespace

ServerMetrics::ServerMetrics(CounterRegistry* registry) {
  if (registry == nullptr) return;
  connections = &registry->counter(metric::kHttpServerConnections);
  refused_connections = &registry->counter(metric::kHttpServerRefusedConnections);
  requests = &registry->counter(metric::kHttpServerRequests);
  client_errors = &registry->counter(metric::kHttpServerClientErrors);
  server_errors = &registry->counter(metric::kHttpServerServerErrors);
  received_bytes = &registry->counter(metric::kHttpServerReceivedBytes);
  sent_bytes = &registry->counter(metric::kHttpServerSentBytes);
}

ServerContext::ServerContext(const ServerOptions& server_options, HttpHandler server_handler)
    : options(server_options),
      handler(std::move(server_handler)),
      metrics(server_options.counters) {}

Connection::Connection(UniqueFd fd, SslPointer ssl, std::string peer, const ServerOptions& options)
    : channel(std::move(fd), std::move(ssl)),
      peer_address(std::move(peer)),
      scanner(options.header_bytes_max, options.target_bytes_max) {}

void Connection::consume(size_t bytes) {
  begin_ += bytes;
  if (begin_ == end_) begin_ = end_ = 0;
}

void Connection::reserve_input(size_t bytes) {
  if (input_.size() - end_ >= bytes) return;
  if (begin_ != end_) std::memmove(input_.data(), input_.data() + begin_, end_ - begin_);
  end_ -= begin_;
  begin_ = 0;
  if (input_.size() - end_ < bytes) input_.resize(end_ + bytes);
}

std::span<std::byte> Connection::space() {
  return std::span(input_).subspan(end_);
}

Channel::State Connection::try_fill() {
  // Doubles while a head grows; the scanner's limits end that.
  if (end_ == input_.size()) reserve_input(std::max(kInputBytesFirst, end_ - begin_));
  const Channel::Step step = channel.try_read(space());
  if (step.state == Channel::State::kMoved) added(step.bytes);
  return step.state;
}

void Connection::leave_body(uint64_t bytes_max) {
  has_left_body_ = true;
  left_bytes_ = bytes_max;
}

HeadScanner::State Connection::skip_left_body() {
  if (!head.is_chunked) {
    const uint64_t bytes = std::min<uint64_t>(left_bytes_, input().size());
    consume(bytes);
    left_bytes_ -= bytes;
    has_left_body_ = left_bytes_ > 0;
  }
  std::array<std::byte, kDiscardBytes> discarded;
  while (has_left_body_ && head.is_chunked) {
    const auto decoded = parser.decode_chunked(input(), discarded);
    consume(decoded.consumed);
    if (decoded.malformed || input().size() >= kChunkedInputBytes)
      return scanner.refuse(400, "a malformed chunk");
    if (decoded.produced > left_bytes_) return scanner.refuse(413, "the body is too long");
    left_bytes_ -= decoded.produced;
    has_left_body_ = !decoded.ended;
    if (decoded.produced == 0) break;
  }
  return has_left_body_ ? HeadScanner::State::kNeedMore : HeadScanner::State::kWhole;
}

HeadScanner::State Connection::scan() {
  if (has_left_body_)
    if (const auto state = skip_left_body(); state != HeadScanner::State::kWhole) return state;
  // RFC 9112 section 2.2: an empty line before a request is passed over.
  while (at_request_start_ && input().starts_with(kLineEnd)) consume(kLineEnd.size());
  if (input().size() > 1) at_request_start_ = false;
  return scanner.scan(input());
}

void Connection::end_head() {
  consume(scanner.head_bytes());
  scanner.reset();
  at_request_start_ = true;
}

void Connection::release_memory() {
  if (begin_ != end_ || input_.size() <= kInputBytesFirst) return;
  input_ = {};
  output = {};
}

Exchange::Exchange(Connection& connection, ServerContext& context)
    : connection_(connection),
      context_(context),
      stop_token_(context.stop.token()),
      read_limit_(context.options.progress_timeout, context.options.progress_bytes_min),
      write_limit_(context.options.progress_timeout, context.options.progress_bytes_min) {}

NextStep Exchange::run() {
  const size_t head_bytes = connection_.scanner.head_bytes();
  auto refusal =
      connection_.parser.parse_head(connection_.input().substr(0, head_bytes), connection_.head);
  connection_.end_head();
  count(context_.metrics.received_bytes, static_cast<double>(head_bytes));
  if (!refusal && head().target.size() > context_.options.target_bytes_max)
    refusal = Refusal{414, "the target is too long"};
  if (!refusal && head().content_length > context_.options.body_bytes_max)
    refusal = Refusal{413, "the body is too long"};
  if (refusal) {
    send_refusal(connection_, context_, *refusal);
    return NextStep::kLinger;
  }
  count(context_.metrics.requests, 1);
  body_ended_ = !head().is_chunked && head().content_length == 0;
  continue_pending_ = head().expects_continue;
  // There is nothing that a refusal could spare, and Python's botocore, which asks for files
  // without bytes too, gets the next answer on the connection wrong unless it hears this.
  if (body_ended_) (void)continue_if_expected();
  call_handler();
  if (auto status = finish_response(); !status) {
    log_debug("{}: {} {}: {}", connection_.peer_address, head().method, path_of(head().target),
              status.error().message);
    return NextStep::kBreak;
  }
  if (status_ >= 500) count(context_.metrics.server_errors, 1);
  if (status_ >= 400 && status_ < 500) count(context_.metrics.client_errors, 1);
  return next_step();
}

void Exchange::call_handler() {
  Request request(*this);
  ResponseWriter response(*this);
  try {
    context_.handler(request, response);
  } catch (const std::exception& e) {
    log_error("handler of {} {} threw: {}", head().method, path_of(head().target), e.what());
    broken_ = broken_ || started_;
    read_failure_status_ = 500;
  }
}

Status Exchange::finish_response() {
  if (broken_) return Error{Code::kCancelled, "the response was broken off"};
  if (!started_) {
    close_asked_ = close_asked_ || read_failure_status_ != 0;
    if (read_failure_status_ == 0)
      log_error("handler of {} {} left without a response", head().method, path_of(head().target));
    const int status = read_failure_status_ == 0 ? 500 : read_failure_status_;
    response_headers_.clear();
    response_headers_.set("Content-Type", "text/plain");
    YARD_TRY(send(status, std::string(status_reason(status)) + "\n"));
  }
  if (!is_bodyless_answer() && promised_bytes_ && written_bytes_ != *promised_bytes_)
    return Error{Code::kInternal, "the handler wrote less than it promised"};
  if (is_chunked_ && !is_bodyless_answer()) {
    std::array<iovec, 2> pieces = {piece_of(take_head()), piece_of(std::string_view("0\r\n\r\n"))};
    return sent(connection_.channel.write(pieces, false, write_limit_));
  }
  return flush();
}

NextStep Exchange::next_step() {
  if (!keeps_ || read_failure_status_ != 0) return NextStep::kLinger;
  // Without waiting: clients that never send their body would hold all workers.
  if (!body_ended_)
    connection_.leave_body(head().is_chunked ? context_.options.drain_bytes_max
                                             : unread_bytes_min());
  return NextStep::kKeep;
}

void Exchange::send_refusal(Connection& connection, ServerContext& context, Refusal refusal) {
  log_debug("{}: {} {}", connection.peer_address, refusal.status, refusal.reason);
  count(context.metrics.client_errors, 1);
  const std::string body = std::string(refusal.reason) + "\n";
  std::string message = "HTTP/1.1 " + std::to_string(refusal.status) + ' ' +
                        std::string(status_reason(refusal.status)) + "\r\nDate: " + date_now() +
                        "\r\nContent-Type: text/plain\r\nConnection: close\r\nContent-Length: " +
                        std::to_string(body.size()) + "\r\n\r\n" + body;
  // So few bytes fit into any socket's buffer; a peer whose buffer is full does not read anyway.
  (void)connection.channel.try_write(std::as_bytes(std::span(message)));
}

// ---- the request's body

std::optional<uint64_t> Exchange::content_length() const {
  if (head().is_chunked) return std::nullopt;
  return head().content_length;
}

Error Exchange::read_failed(int status, Error error) {
  read_failure_status_ = status;
  close_asked_ = true;
  return error;
}

Error Exchange::body_is_too_long(uint64_t size_bytes_max) {
  return read_failed(413, {Code::kExhausted,
                           "the body is longer than " + std::to_string(size_bytes_max) + " bytes"});
}

Status Exchange::continue_if_expected() {
  if (!continue_pending_) return Ok{};
  continue_pending_ = false;
  // Not for one that sent its body without waiting, nor in the middle of a response.
  if (started_ || !connection_.input().empty()) return Ok{};
  std::array<iovec, 1> pieces = {piece_of(kContinue)};
  return connection_.channel.write(pieces, false, write_limit_);
}

Result<size_t> Exchange::read(std::span<std::byte> into) {
  if (read_failure_status_ != 0)
    return Error{Code::kUnavailable, "the body could not be read before"};
  if (body_ended_ || into.empty()) return size_t{0};
  auto bytes = [&]() -> Result<size_t> {
    YARD_TRY(continue_if_expected());
    return head().is_chunked ? read_chunked(into) : read_sized(into);
  }();
  if (!bytes) {
    const Code code = bytes.error().code;
    return read_failed(status_of_read_error(code), std::move(bytes).error());
  }
  body_read_bytes_ += *bytes;
  count(context_.metrics.received_bytes, static_cast<double>(*bytes));
  if (head().is_chunked && body_read_bytes_ > context_.options.body_bytes_max)
    return body_is_too_long(context_.options.body_bytes_max);
  return bytes;
}

Result<size_t> Exchange::read_sized(std::span<std::byte> into) {
  const uint64_t left = head().content_length - body_read_bytes_;
  into = into.first(std::min<uint64_t>(into.size(), left));
  size_t bytes = std::min(into.size(), connection_.input().size());
  if (bytes > 0) {
    std::memcpy(into.data(), connection_.input().data(), bytes);
    connection_.consume(bytes);
  } else {
    YARD_ASSIGN(bytes, connection_.channel.read(into, read_limit_));
    if (bytes == 0) return Error{Code::kUnavailable, "the client ended inside the body"};
  }
  body_ended_ = bytes == left;
  return bytes;
}

Status Exchange::fill_input() {
  if (connection_.input().size() >= kChunkedInputBytes)
    return Error{Code::kCorrupt, "a chunk's header or trailer is too long"};
  connection_.reserve_input(kChunkedInputBytes);
  YARD_ASSIGN(const size_t bytes, connection_.channel.read(connection_.space(), read_limit_));
  if (bytes == 0) return Error{Code::kUnavailable, "the client ended inside the body"};
  connection_.added(bytes);
  return Ok{};
}

Result<size_t> Exchange::read_chunked(std::span<std::byte> into) {
  for (;;) {
    const auto decoded = connection_.parser.decode_chunked(connection_.input(), into);
    connection_.consume(decoded.consumed);
    if (decoded.malformed) return Error{Code::kCorrupt, "a malformed chunk"};
    body_ended_ = decoded.ended;
    if (decoded.produced > 0 || decoded.ended) return decoded.produced;
    YARD_TRY(fill_input());
  }
}

// ---- the response

bool Exchange::is_bodyless_answer() const {
  return head().method == "HEAD" || status_ < 200 || status_ == 204 || status_ == 304;
}

uint64_t Exchange::unread_bytes_min() const {
  if (body_ended_) return 0;
  return head().is_chunked ? 1 : head().content_length - body_read_bytes_;
}

bool Exchange::must_close() const {
  // A client that still waits for 100 may send its body after our answer, or not: nothing tells.
  return close_asked_ || continue_pending_ || !head().keep_alive ||
         unread_bytes_min() > context_.options.drain_bytes_max || context_.draining.load();
}

Status Exchange::check_response_headers() const {
  for (const auto [name, value] : response_headers_)
    if (!is_header_name(name) || !is_header_value(value))
      return Error{Code::kInvalidArgument, "header '" + std::string(name) + "' cannot be sent"};
  return Ok{};
}

void Exchange::append_field(std::string_view name, std::string_view value) {
  connection_.output.append(name).append(": ").append(value).append(kLineEnd);
}

void Exchange::make_head(std::optional<uint64_t> content_length) {
  const bool is_until_close = !content_length && head().is_http_1_0 && !is_bodyless_answer();
  is_chunked_ = !content_length && !head().is_http_1_0;
  if (equals_ignoring_case(response_headers_.value_or("Connection", ""), "close"))
    close_asked_ = true;
  keeps_ = !must_close() && !is_until_close;

  std::string& output = connection_.output;
  output.assign("HTTP/1.1 ").append(std::to_string(status_)).append(" ");
  output.append(status_reason(status_)).append(kLineEnd);
  if (!response_headers_.contains("Date")) append_field("Date", date_now());
  if (!context_.options.server_name.empty() && !response_headers_.contains("Server"))
    append_field("Server", context_.options.server_name);
  for (const auto [name, value] : response_headers_)
    if (!is_servers_own(name)) append_field(name, value);
  if (status_ >= 200 && status_ != 204 && status_ != 304) {
    if (content_length) append_field("Content-Length", std::to_string(*content_length));
    if (is_chunked_) append_field("Transfer-Encoding", "chunked");
  }
  if (!keeps_) append_field("Connection", "close");
  if (keeps_ && head().is_http_1_0) append_field("Connection", "keep-alive");
  output.append(kLineEnd);
}

Status Exchange::start(int status, std::optional<uint64_t> content_length) {
  YARD_CHECK(!started_);
  YARD_CHECK(status >= 200 && status <= 599);
  YARD_TRY(check_response_headers());
  started_ = true;
  head_pending_ = true;
  status_ = status;
  promised_bytes_ = content_length;
  make_head(content_length);
  return Ok{};
}

Status Exchange::send(int status, std::string_view body) {
  YARD_TRY(start(status, body.size()));
  YARD_TRY(write(std::as_bytes(std::span(body))));
  return flush();
}

// Every error in sending ends the connection.
Status Exchange::sent(Status status) {
  if (!status) broken_ = true;
  return status;
}

Status Exchange::count_written(uint64_t bytes) {
  YARD_CHECK(started_);
  if (promised_bytes_ && bytes > *promised_bytes_ - written_bytes_)
    return Error{Code::kInternal, "more body than was promised"};
  written_bytes_ += bytes;
  count(context_.metrics.sent_bytes, static_cast<double>(bytes));
  return Ok{};
}

// What is to be sent before anything else, once.
std::string_view Exchange::take_head() {
  if (!head_pending_) return {};
  head_pending_ = false;
  return connection_.output;
}

Status Exchange::send_head_and(std::span<const std::byte> body, bool more) {
  std::array<iovec, 2> pieces = {piece_of(take_head()), piece_of(body)};
  return connection_.channel.write(pieces, more, write_limit_);
}

Status Exchange::write_chunk(std::span<const std::byte> bytes) {
  std::array<char, 24> size_line{};
  const int size_bytes = std::snprintf(size_line.data(), size_line.size(), "%zx\r\n", bytes.size());
  std::array<iovec, 4> pieces = {
      piece_of(take_head()),
      piece_of(std::string_view(size_line.data(), static_cast<size_t>(size_bytes))),
      piece_of(bytes), piece_of(kLineEnd)};
  return connection_.channel.write(pieces, false, write_limit_);
}

Status Exchange::write(std::span<const std::byte> bytes) {
  YARD_TRY(sent(count_written(bytes.size())));
  if (bytes.empty() || is_bodyless_answer()) return Ok{};
  return sent(is_chunked_ ? write_chunk(bytes) : send_head_and(bytes, false));
}

Status Exchange::write_file(int fd, uint64_t offset, uint64_t length) {
  YARD_TRY(sent(count_written(length)));
  if (length == 0 || is_bodyless_answer()) return Ok{};
  if (is_chunked_) {
    std::array<char, 24> size_line{};
    const int bytes = std::snprintf(size_line.data(), size_line.size(), "%llx\r\n",
                                    static_cast<unsigned long long>(length));
    const std::string_view line(size_line.data(), static_cast<size_t>(bytes));
    YARD_TRY(sent(send_head_and(std::as_bytes(std::span(line)), true)));
  } else if (head_pending_) {
    YARD_TRY(sent(send_head_and({}, true)));
  }
  YARD_TRY(sent(connection_.channel.write_file(fd, offset, length, write_limit_)));
  if (!is_chunked_) return Ok{};
  return sent(send_head_and(std::as_bytes(std::span(kLineEnd)), false));
}

Status Exchange::flush() {
  if (!head_pending_) return Ok{};
  return sent(send_head_and({}, false));
}

}  // namespace yard::net_internal
