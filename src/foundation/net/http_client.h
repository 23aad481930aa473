// HttpClient: HTTP/1.1 and TLS requests over pooled keep-alive connections (libcurl).
//
//   HttpClient client({});
//   HttpRequest request{.url = "http://127.0.0.1:9000/bucket/key"};
//   YARD_ASSIGN(HttpResponse response, client.send(std::move(request)));
//
// It neither follows redirects nor retries nor reads proxies from the environment: the caller
// decides those.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/stop_token.h"
#include "net/http_message.h"

namespace yard {

namespace net_internal {
class TransferState;
}  // namespace net_internal

struct HttpClientOptions {
  int thread_count = 1;  // event threads; a transfer stays on one
  // Connections to one host at a time, further transfers wait for one; and those kept when idle.
  // Both in all, over the threads.
  size_t connections_per_host_max = 256;
  size_t connections_idle_max = 256;
  std::string user_agent = "trainyard";
  std::string ca_path;     // PEM file with trusted certificates; empty: the system's
  bool verify_tls = true;  // false accepts any certificate: for tests and closed networks
  std::string proxy;       // URL; empty: none
  size_t receive_buffer_bytes = 512 << 10;  // per transfer, less for a smaller destination
  size_t send_buffer_bytes = 512 << 10;     // per upload
};

// What a sink says to the bytes it is given.
enum class SinkReply {
  kTaken,
  kPause,  // not taken: the same bytes come again after Transfer::resume()
  kAbort,  // end the transfer with kCancelled
};

struct HttpRequest {
  std::string method = "GET";
  std::string url;  // http or https, encoded by the caller: it is sent as it is, dots included
  Headers headers;  // Host, Content-Length and Connection are added; a Host given here wins

  // The body: one of the two, or none. Neither is copied; the bytes must stay valid until the
  // transfer is over.
  std::optional<std::span<const std::byte>> body;
  // Gives the bytes at `offset`, at least one, into `into`; called on an event thread, and from the
  // start again when a kept connection turns out dead. The transfer fails with its error.
  std::function<Result<size_t>(uint64_t offset, std::span<std::byte> into)> body_reader;
  uint64_t body_reader_bytes = 0;  // the exact length of what body_reader gives
  // Ask with `Expect: 100-continue` and wait for the answer (1 s at most) before the body is sent.
  bool expect_continue = false;

  // Where the body of a 2xx response goes: one of the two, else to HttpResponse::body. The body of
  // any other response always goes to HttpResponse::body, cut at body_bytes_max, so that an error
  // page never becomes content.
  // The buffer: filled exactly, or the transfer fails: kCorrupt when the body is longer or shorter.
  std::optional<std::span<std::byte>> into;
  // Called on an event thread; it must not block.
  std::function<SinkReply(std::span<const std::byte>)> sink;
  // Most bytes of a 2xx body that goes to HttpResponse::body: kExhausted beyond.
  size_t body_bytes_max = 16 << 20;
  // Called on an event thread once the head of the final response is there, before any body; the
  // transfer ends with the error it returns.
  std::function<Status(const ResponseHead&)> on_head;

  std::chrono::milliseconds connect_timeout{5'000};
  std::chrono::milliseconds total_timeout{0};  // 0: none; a wait for a connection counts
  // kDeadlineExceeded when slower than that over the whole of that time (whole seconds; 0: never).
  // Paused time does not count.
  uint64_t low_speed_bytes_per_second = 1;
  std::chrono::seconds low_speed_time{30};
  StopToken stop;  // ends the transfer with kCancelled
};

struct HttpResponse {
  int status = 0;
  Headers headers;
  std::string body;                              // see HttpRequest::into
  uint64_t body_bytes = 0;                       // received, wherever they went
  std::chrono::microseconds first_byte_time{0};  // from the start of the request to the first byte
  std::chrono::microseconds total_time{0};
  bool reused_connection = false;
};

// A running request. Move-only. The destructor cancels what is not over and returns when no thread
// uses the request's buffers and callbacks any more; its completion is then not called.
class Transfer {
 public:
  Transfer() = default;
  Transfer(Transfer&&) noexcept = default;
  Transfer& operator=(Transfer&& other) noexcept;
  ~Transfer();

  // Blocks until it is over; the result is handed out once, and only to a transfer that was started
  // without completion.
  Result<HttpResponse> wait();
  bool done() const;
  // Ends it with kCancelled, unless it is over. Does not block.
  void cancel();
  // Lets a paused sink have its bytes. From any thread; harmless when not paused.
  void resume();

 private:
  friend class HttpClient;
  explicit Transfer(std::shared_ptr<net_internal::TransferState> state);
  std::shared_ptr<net_internal::TransferState> state_;
};

// Thread-safe. Outlives its transfers; the destructor ends those still running with kCancelled.
//
// A response of any status is a value: the caller judges it. Errors name the URL without its query:
// kUnavailable (no connection, reset, cut short, name not resolved), kDeadlineExceeded,
// kCancelled, kCorrupt (not HTTP; another length than `into`), kExhausted (body_bytes_max),
// kInvalidArgument (URL, header or method that cannot be sent; certificate refused).
class HttpClient {
 public:
  using Completion = std::function<void(Result<HttpResponse>)>;

  explicit HttpClient(HttpClientOptions options);
  ~HttpClient();

  Result<HttpResponse> send(HttpRequest request);
  // With a completion, it is called once, on an event thread, and must not block.
  Transfer start(HttpRequest request, Completion completion = nullptr);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace yard
