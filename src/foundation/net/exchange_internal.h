// Connection: a client's socket with what came on it. Exchange: one request and its response.
// Blocking, no threads: http_server.cc decides on which thread they run.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "net/channel_internal.h"
#include "net/http_server.h"
#include "net/request_parser_internal.h"
#include "telemetry/counters.h"

namespace yard::net_internal {

// Where a server counts; all null when it counts nowhere.
struct ServerMetrics {
  explicit ServerMetrics(CounterRegistry* registry);

  Counter* connections = nullptr;
  Counter* refused_connections = nullptr;
  Counter* requests = nullptr;
  Counter* client_errors = nullptr;
  Counter* server_errors = nullptr;
  Counter* received_bytes = nullptr;
  Counter* sent_bytes = nullptr;
};

// What the connections of one server share.
struct ServerContext {
  ServerContext(const ServerOptions& options, HttpHandler handler);

  const ServerOptions options;
  const HttpHandler handler;
  const ServerMetrics metrics;
  StopSource stop;                     // asked when the grace time is over
  std::atomic<bool> draining = false;  // no connection is kept
};

// Used by one thread at a time, but for channel.break_off().
class Connection {
 public:
  Connection(UniqueFd fd, SslPointer ssl, std::string peer_address, const ServerOptions& options);

  // The bytes that came and are not used yet.
  std::string_view input() const {
    return {reinterpret_cast<const char*>(input_.data()) + begin_, end_ - begin_};
  }
  void consume(size_t bytes);
  // Does not wait. kMoved when bytes came.
  Channel::State try_fill();
  // Makes the next fill take up to that many bytes.
  void reserve_input(size_t bytes);
  std::span<std::byte> space();  // for received bytes; then added(n)
  void added(size_t bytes) { end_ += bytes; }
  // The last request's body was not read to its end; scan() passes over up to that many bytes.
  void leave_body(uint64_t bytes_max);
  bool has_left_body() const { return has_left_body_; }
  // Looks for a head in the input.
  HeadScanner::State scan();
  void end_head();        // after kWhole: the head is not needed any more
  void release_memory();  // while idle

  Channel channel;
  const std::string peer_address;
  HeadScanner scanner;
  RequestParser parser;
  RequestHead head;
  std::string output;  // the head of a response that is being made

 private:
  HeadScanner::State skip_left_body();  // kWhole when it is behind us

  std::vector<std::byte> input_;
  size_t begin_ = 0;
  size_t end_ = 0;
  bool at_request_start_ = true;
  bool has_left_body_ = false;
  uint64_t left_bytes_ = 0;
};

enum class NextStep {
  kKeep,    // the next request may follow
  kLinger,  // close, but read on for a while: a reset could overtake the response
  kBreak,   // close at once
};

class Exchange {
 public:
  Exchange(Connection& connection, ServerContext& context);

  // The next request: its head is whole in the connection's input. Runs the handler.
  NextStep run();
  // Answers what was refused before it became a request. Does not wait for a slow peer.
  static void send_refusal(Connection& connection, ServerContext& context, Refusal refusal);

  const RequestHead& head() const { return connection_.head; }
  const Connection& connection() const { return connection_; }
  const StopToken& stop_token() const { return stop_token_; }

  // Request's and ResponseWriter's functions.
  std::optional<uint64_t> content_length() const;
  Result<size_t> read(std::span<std::byte> into);
  Error body_is_too_long(uint64_t size_bytes_max);  // for the handler; 413 when it does not answer
  Headers& response_headers() { return response_headers_; }
  Status send(int status, std::string_view body);
  Status start(int status, std::optional<uint64_t> content_length);
  Status write(std::span<const std::byte> bytes);
  Status write_file(int fd, uint64_t offset, uint64_t length);
  Status flush();
  bool started() const { return started_; }
  void close_connection() { close_asked_ = true; }
  void abort() { broken_ = true; }

 private:
  bool is_bodyless_answer() const;
  uint64_t unread_bytes_min() const;
  bool must_close() const;
  Status check_response_headers() const;
  void make_head(std::optional<uint64_t> content_length);
  void append_field(std::string_view name, std::string_view value);
  std::string_view take_head();
  Status send_head_and(std::span<const std::byte> body, bool more);
  Status write_chunk(std::span<const std::byte> bytes);
  Status count_written(uint64_t bytes);
  Status sent(Status status);
  Result<size_t> read_sized(std::span<std::byte> into);
  Result<size_t> read_chunked(std::span<std::byte> into);
  Status fill_input();
  Status continue_if_expected();
  Error read_failed(int status, Error error);
  void call_handler();
  Status finish_response();
  NextStep next_step();

  Connection& connection_;
  ServerContext& context_;
  const StopToken stop_token_;
  ProgressLimit read_limit_;
  ProgressLimit write_limit_;

  // The request's body.
  uint64_t body_read_bytes_ = 0;
  bool body_ended_ = false;
  bool continue_pending_ = false;
  int read_failure_status_ = 0;  // what to answer when the handler does not

  // The response.
  Headers response_headers_;
  int status_ = 0;
  std::optional<uint64_t> promised_bytes_;
  uint64_t written_bytes_ = 0;
  bool started_ = false;
  bool head_pending_ = false;  // made, not yet sent
  bool is_chunked_ = false;
  bool keeps_ = false;  // what the head told the client
  bool close_asked_ = false;
  bool broken_ = false;
};

// Runs requests as long as whole ones are there; `wait_for_more` decides whether to stay for the
// next one and returns true when bytes came.
template <typename WaitForMore>
NextStep serve_requests(Connection& connection, ServerContext& context,
                        WaitForMore&& wait_for_more) {
  for (;;) {
    switch (connection.scan()) {
      case HeadScanner::State::kWhole:
        if (const NextStep next = Exchange(connection, context).run(); next != NextStep::kKeep)
          return next;
        break;
      case HeadScanner::State::kRefused:
        Exchange::send_refusal(connection, context, connection.scanner.refusal());
        return NextStep::kLinger;
      case HeadScanner::State::kNeedMore:
        if (!wait_for_more()) return NextStep::kKeep;
        break;
    }
  }
}

}  // namespace yard::net_internal
