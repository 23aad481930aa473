// Request heads and chunked bodies out of bytes: pure, no I/O. Boost.Beast parses; this adds what
// RFC 9112 lets a server refuse and what request smuggling lives on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "net/http_message.h"

namespace yard::net_internal {

// Why a request is refused, without asking the handler.
struct Refusal {
  int status;
  std::string_view reason;  // a literal
};

// Looks for the end of a head in bytes that come bit by bit.
class HeadScanner {
 public:
  enum class State { kNeedMore, kWhole, kRefused };

  HeadScanner(size_t header_bytes_max, size_t target_bytes_max)
      : header_bytes_max_(header_bytes_max), target_bytes_max_(target_bytes_max) {}

  // `input` begins with the head and holds at least what it held at the last call.
  State scan(std::string_view input);
  void reset();
  size_t head_bytes() const { return head_bytes_; }   // after kWhole
  Refusal refusal() const { return refusal_; }        // after kRefused
  State refuse(int status, std::string_view reason);  // for what stands before the head, too

 private:
  State scan_line(std::string_view input, size_t line_end);

  const size_t header_bytes_max_;
  const size_t target_bytes_max_;
  size_t scanned_bytes_ = 0;
  size_t line_begin_ = 0;
  size_t head_bytes_ = 0;
  Refusal refusal_{0, ""};
};

struct RequestHead {
  std::string method;
  std::string target;
  Headers headers;
  bool is_http_1_0 = false;
  bool keep_alive = false;
  bool is_chunked = false;
  bool expects_continue = false;
  uint64_t content_length = 0;

  void clear();
};

// Reusable: parse_head() begins the next request.
class RequestParser {
 public:
  RequestParser();
  ~RequestParser();

  // `bytes` is one whole head, as HeadScanner found it.
  std::optional<Refusal> parse_head(std::string_view bytes, RequestHead& head);

  struct Decoded {
    size_t consumed = 0;  // bytes of the input that are not needed again
    size_t produced = 0;
    bool ended = false;  // the last chunk and the trailer are behind us
    bool malformed = false;
  };
  // The chunked body behind that head. With neither progress nor end it needs more input behind
  // what it did not consume.
  Decoded decode_chunked(std::string_view input, std::span<std::byte> into);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace yard::net_internal
