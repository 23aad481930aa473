// HttpServer: HTTP/1.1 over TCP or TLS, for handlers written in plain blocking style.
//
//   HttpServer::start({.port = 0}, [](Request& request, ResponseWriter& response) {
//     response.headers().set("Content-Type", "text/plain");
//     (void)response.send(200, "hello\n");
//   });
//
// Idle connections, and those whose request head is still coming, cost no thread: an event thread
// watches them. A request whose head is whole takes a worker thread until its response is sent. It
// knows no route: the handler decides by method() and target().
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

#include "base/file.h"
#include "base/result.h"
#include "base/stop_token.h"
#include "net/http_message.h"
#include "telemetry/counters.h"

namespace yard {

namespace net_internal {
class Exchange;  // one request and its response on one connection
}  // namespace net_internal

// What the client asked. Lives as long as the handler's call; used by one thread at a time.
class Request {
 public:
  explicit Request(net_internal::Exchange& exchange) : exchange_(exchange) {}
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;

  // As sent, nothing decoded: target() is "/a%20b?x=1", path() its part before the '?', query() the
  // part behind it (without '?'). Valid as long as the request.
  std::string_view method() const;
  std::string_view target() const;
  std::string_view path() const;
  std::string_view query() const;
  const Headers& headers() const;
  std::string_view peer_address() const;  // "127.0.0.1:40112", "[::1]:40112"
  bool is_tls() const;

  // 0: no body; nullopt: a chunked body, its length known at its end.
  std::optional<uint64_t> content_length() const;
  // Reads the next bytes of the body, transfer coding removed; 0 means its end. Blocks. The first
  // call answers `Expect: 100-continue`, so a handler that refuses before it reads spares the
  // client the sending. kUnavailable: the client went away; kDeadlineExceeded: it sends too slowly;
  // kExhausted: the body is longer than the limit; kCorrupt: malformed chunks. After an error a
  // handler may just return: the server then answers 400, 408 or 413 as fits, and closes.
  Result<size_t> read(std::span<std::byte> into);
  // The whole rest of the body; kExhausted when longer than `size_bytes_max`.
  Result<std::string> read_all(size_t size_bytes_max);

  // Stopped when the server's grace time is over; for handlers that wait for something else than
  // this connection.
  const StopToken& stop_token() const;

 private:
  net_internal::Exchange& exchange_;
};

// The response. Lives as long as the handler's call; used by one thread at a time.
//
// Exactly one of send(), send_file() and start() begins it. The server adds Date, Server,
// Content-Length or Transfer-Encoding, and Connection. To a HEAD request, and with the statuses
// 1xx, 204 and 304, the body is left out, whatever is written.
// Errors: kUnavailable, the client went away; kDeadlineExceeded, it takes the bytes too slowly;
// kInvalidArgument, a header that may not be sent; kInternal, more bytes than promised. All but
// kInvalidArgument end the connection.
class ResponseWriter {
 public:
  explicit ResponseWriter(net_internal::Exchange& exchange) : exchange_(exchange) {}
  ResponseWriter(const ResponseWriter&) = delete;
  ResponseWriter& operator=(const ResponseWriter&) = delete;

  Headers& headers();  // what start() will send; not changed afterwards

  // The whole response at once, in one system call where the socket takes it.
  Status send(int status, std::string_view body = {});
  // The whole response, its body `length` bytes of the file `fd` from `offset`. One copy in memory
  // at most (sendfile) on plain TCP. kCorrupt when the file ends early: the client then sees a
  // broken connection, never padding. Does not move the file's position.
  Status send_file(int status, int fd, uint64_t offset, uint64_t length);

  // The head; then the body with any number of write() and write_file(). nullopt: chunked
  // (or, for an HTTP/1.0 client, until the connection closes). A handler that returns before
  // `content_length` bytes breaks the connection, so that the client sees it.
  Status start(int status, std::optional<uint64_t> content_length);
  Status write(std::span<const std::byte> bytes);
  Status write(std::string_view text) { return write(std::as_bytes(std::span(text))); }
  Status write_file(int fd, uint64_t offset, uint64_t length);
  // Sends what start() and write() may hold back. Needed only before the handler waits.
  Status flush();

  bool started() const;
  // No further request on this connection.
  void close_connection();
  // Breaks the connection at once, for a response that turned out wrong after its head was sent.
  void abort();

 private:
  net_internal::Exchange& exchange_;
};

// Called on many threads at once. An exception that leaves it becomes a 500.
using HttpHandler = std::function<void(Request&, ResponseWriter&)>;

struct ServerOptions {
  // Where to listen. A name is resolved and every address of it is used; "" means all interfaces.
  std::string host = "127.0.0.1";
  uint16_t port = 0;  // 0: any free one, see HttpServer::port()

  // PEM files; both empty: plain HTTP. The certificate file may hold the chain behind it.
  std::string tls_certificate_path;
  std::string tls_key_path;

  // The value of the Server header; empty: none.
  std::string server_name = "trainyard";

  // Threads: those that watch, and the most that run handlers (0: 4 per core, at least 64; started
  // as needed). A slow download holds one of the latter.
  int io_thread_count = 1;
  int worker_count_max = 0;

  // Limits of a request. Beyond them: 431, 414, 413.
  size_t header_bytes_max = 32 << 10;  // request line and header fields together
  size_t target_bytes_max = 8 << 10;
  uint64_t body_bytes_max = uint64_t{5} << 40;  // S3's largest object
  // The rest of a body that the handler left unread is passed over up to here, by no worker, so
  // that the connection can be kept; beyond it the connection is closed. It has header_timeout
  // to come.
  uint64_t drain_bytes_max = 256 << 10;

  // Open connections; further ones are answered 503 and closed. Fewer where the process may not
  // open so many files (base/open_files.h) besides those that its workers need.
  size_t connections_max = 8192;
  // That a handler has open at once.
  size_t files_per_worker = 4;

  // Time to send a whole head, from its first byte (the first: from the connection).
  std::chrono::milliseconds header_timeout{10'000};
  // Between two requests on one connection.
  std::chrono::milliseconds idle_timeout{75'000};
  // A body, in or out, must move by `progress_bytes_min` in each `progress_timeout` that is spent
  // waiting for the client; a handler's own time does not count.
  std::chrono::milliseconds progress_timeout{30'000};
  size_t progress_bytes_min = 4 << 10;
  // After a response a worker stays with its connection that long for a next request, while at
  // least half of the workers are free: it saves two thread switches per request.
  std::chrono::milliseconds linger_timeout{20};

  // Where http_server_* (metric_names.h) are counted; not owned, may be null.
  CounterRegistry* counters = nullptr;
};

// Thread-safe. The destructor is stop() with no grace.
class HttpServer {
 public:
  // kUnavailable: the port is taken; kInvalidArgument: no such host, or the TLS files do not fit;
  // kExhausted: the process may open too few files.
  static Result<std::unique_ptr<HttpServer>> start(const ServerOptions& options,
                                                   HttpHandler handler);
  ~HttpServer();

  uint16_t port() const;
  size_t connections_max() const;  // that hold, see ServerOptions
  std::string url() const;         // "http://127.0.0.1:40123", host as given in the options

  // Accepts no more, closes idle connections, lets running requests end within `grace`, then breaks
  // them; returns when every thread has ended. A handler that never returns is waited for.
  // Idempotent.
  void stop(std::chrono::milliseconds grace);

 private:
  class Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Serves one connected stream socket (also a socketpair) in the caller's thread until either side
// closes it: the server without its threads, as fuzz targets and tests use it. TLS is not spoken,
// and neither the host and port nor the threads of `options` are used.
void serve_connection(UniqueFd socket, const ServerOptions& options, const HttpHandler& handler);

}  // namespace yard
