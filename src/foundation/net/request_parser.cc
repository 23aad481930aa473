#include <algorithm>
#include <boost/beast/http/basic_parser.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/optional/optional.hpp>
#include <cstring>

#include "net/request_parser_internal.h"

namespace yard::net_internal {
namespace {

namespace http = boost::beast::http;
using boost::beast::error_code;
using BeastView = boost::beast::string_view;

std::string_view to_std(BeastView text) {
  return {text.data(), text.size()};
}

// What a request line holds beside its target: a method, two spaces, the version, the line's end.
constexpr size_t kLineBytesBesideTarget = 64;

// Beast's events, kept as a RequestHead; body bytes go where `into` points.
class BeastParser : public http::basic_parser<true> {
 public:
  explicit BeastParser(RequestHead* head) : head_(head) {
    header_limit(UINT32_MAX);  // HeadScanner limits it
    body_limit(UINT64_MAX);    // the reader of the body limits it; none would refuse all lengths
  }

  std::span<std::byte> into;

 private:
  void on_request_impl(http::verb, BeastView method, BeastView target, int version,
                       error_code& ec) override {
    ec = {};
    head_->method = to_std(method);
    head_->target = to_std(target);
    head_->is_http_1_0 = version == 10;
  }
  void on_response_impl(int, BeastView, int, error_code& ec) override {
    ec = http::error::unexpected_body;
  }
  void on_field_impl(http::field, BeastView name, BeastView value, error_code& ec) override {
    ec = {};
    if (!header_done_) head_->headers.add(to_std(name), to_std(value));
  }
  void on_header_impl(error_code& ec) override {
    ec = {};
    header_done_ = true;  // fields after it are the trailer's: read, not kept
  }
  void on_body_init_impl(boost::optional<uint64_t> const&, error_code& ec) override { ec = {}; }
  size_t on_body_impl(BeastView, error_code& ec) override {
    ec = http::error::unexpected_body;  // bodies with a length are read past the parser
    return 0;
  }
  void on_chunk_header_impl(uint64_t, BeastView, error_code& ec) override { ec = {}; }
  size_t on_chunk_body_impl(uint64_t, BeastView body, error_code& ec) override {
    ec = {};
    const size_t bytes = std::min(body.size(), into.size());
    std::memcpy(into.data(), body.data(), bytes);
    into = into.subspan(bytes);
    return bytes;
  }
  void on_finish_impl(error_code& ec) override { ec = {}; }

  RequestHead* head_;
  bool header_done_ = false;
};

Refusal refusal_of(const error_code& error) {
  if (error == http::error::bad_version) return {505, "only HTTP/1.0 and HTTP/1.1 are spoken"};
  if (error == http::error::bad_content_length) return {400, "bad or contradictory Content-Length"};
  if (error == http::error::bad_transfer_encoding)
    return {400, "bad or contradictory Transfer-Encoding"};
  if (error == http::error::bad_method) return {400, "malformed method"};
  if (error == http::error::bad_target) return {400, "malformed target"};
  if (error == http::error::bad_line_ending) return {400, "malformed line ending"};
  return {400, "malformed header"};
}

// Rules beyond the grammar. Each removes a way in which two servers in a row could read one message
// as two different ones.
std::optional<Refusal> check_head(const RequestHead& head) {
  size_t host_count = 0;
  size_t transfer_encoding_count = 0;
  for (const auto [name, value] : head.headers) {
    if (!is_header_value(value)) return Refusal{400, "malformed header"};
    if (equals_ignoring_case(name, "Host")) ++host_count;
    if (equals_ignoring_case(name, "Content-Length") &&
        (value.empty() || value.find_first_not_of("0123456789") != std::string_view::npos))
      return Refusal{400, "bad or contradictory Content-Length"};
    if (equals_ignoring_case(name, "Transfer-Encoding")) {
      if (!equals_ignoring_case(value, "chunked"))
        return Refusal{501, "no transfer coding but chunked is known"};
      ++transfer_encoding_count;
    }
    if (equals_ignoring_case(name, "Expect") && !equals_ignoring_case(value, "100-continue"))
      return Refusal{417, "no expectation but 100-continue is known"};
  }
  if (transfer_encoding_count > 0 && head.headers.contains("Content-Length"))
    return Refusal{400, "both Transfer-Encoding and Content-Length"};
  if (transfer_encoding_count > 1 || (transfer_encoding_count > 0 && head.is_http_1_0))
    return Refusal{400, "bad or contradictory Transfer-Encoding"};
  if (host_count > 1 || (host_count == 0 && !head.is_http_1_0))
    return Refusal{400, "a request needs exactly one Host"};
  return std::nullopt;
}

}  // namespace

HeadScanner::State HeadScanner::refuse(int status, std::string_view reason) {
  refusal_ = {status, reason};
  return State::kRefused;
}

void HeadScanner::reset() {
  scanned_bytes_ = line_begin_ = head_bytes_ = 0;
}

HeadScanner::State HeadScanner::scan(std::string_view input) {
  if (head_bytes_ > 0) return State::kWhole;  // found before
  // Bytes of another protocol (a TLS hello) are told at once, not by a time-out.
  if (!input.empty() && input[0] != '\r' && !is_header_name(input.substr(0, 1)))
    return refuse(400, "not HTTP");
  while (scanned_bytes_ < input.size()) {
    const size_t line_end = input.find('\n', scanned_bytes_);
    if (line_end == std::string_view::npos) {
      scanned_bytes_ = input.size();
      break;
    }
    scanned_bytes_ = line_end + 1;
    const State state = scan_line(input, line_end);
    if (state != State::kNeedMore) return state;
  }
  const bool in_request_line = line_begin_ == 0;
  if (in_request_line && input.size() > target_bytes_max_ + kLineBytesBesideTarget)
    return refuse(414, "the target is too long");
  if (input.size() >= header_bytes_max_) return refuse(431, "the head is too long");
  return State::kNeedMore;
}

HeadScanner::State HeadScanner::scan_line(std::string_view input, size_t line_end) {
  if (line_end == line_begin_ || input[line_end - 1] != '\r')
    return refuse(400, "malformed line ending");
  const std::string_view line = input.substr(line_begin_, line_end - 1 - line_begin_);
  if (line_begin_ == 0 && line.size() > target_bytes_max_ + kLineBytesBesideTarget)
    return refuse(414, "the target is too long");
  if (line_end >= header_bytes_max_) return refuse(431, "the head is too long");
  if (line_begin_ == 0 && line.empty()) return refuse(400, "malformed request line");
  if (line_begin_ > 0 && !line.empty() && (line[0] == ' ' || line[0] == '\t'))
    return refuse(400, "a header is folded over lines");
  line_begin_ = line_end + 1;
  if (!line.empty()) return State::kNeedMore;
  head_bytes_ = line_end + 1;
  return State::kWhole;
}

void RequestHead::clear() {
  method.clear();
  target.clear();
  headers.clear();
  is_http_1_0 = keep_alive = is_chunked = expects_continue = false;
  content_length = 0;
}

class RequestParser::Impl {
 public:
  std::optional<BeastParser> parser;
};

RequestParser::RequestParser() : impl_(std::make_unique<Impl>()) {}
RequestParser::~RequestParser() = default;

std::optional<Refusal> RequestParser::parse_head(std::string_view bytes, RequestHead& head) {
  head.clear();
  BeastParser& parser = impl_->parser.emplace(&head);
  error_code error;
  parser.put(boost::asio::const_buffer(bytes.data(), bytes.size()), error);
  if (error) return refusal_of(error);
  if (!parser.is_header_done()) return Refusal{400, "malformed header"};
  if (auto refusal = check_head(head)) return refusal;
  head.keep_alive = parser.keep_alive();
  head.is_chunked = parser.chunked();
  head.content_length = parser.content_length().value_or(0);
  head.expects_continue = !head.is_http_1_0 && head.headers.contains("Expect");
  return std::nullopt;
}

RequestParser::Decoded RequestParser::decode_chunked(std::string_view input,
                                                     std::span<std::byte> into) {
  BeastParser& parser = *impl_->parser;
  Decoded decoded;
  parser.into = into;
  while (!parser.is_done() && decoded.consumed < input.size() && !parser.into.empty()) {
    error_code error;
    const std::string_view rest = input.substr(decoded.consumed);
    decoded.consumed += parser.put(boost::asio::const_buffer(rest.data(), rest.size()), error);
    if (error == http::error::need_more) break;
    if (error) {
      decoded.malformed = true;
      break;
    }
  }
  decoded.produced = into.size() - parser.into.size();
  decoded.ended = parser.is_done();
  return decoded;
}

}  // namespace yard::net_internal
