#include <algorithm>
#include <array>
#include <exception>
#include <vector>

#include "base/log.h"
#include "net/io_thread_internal.h"

namespace yard::net_internal {
namespace {

using boost::system::error_code;
using Descriptor = boost::asio::posix::stream_descriptor;

// How long and how much a closed connection is still read: long enough that a client which is
// still sending gets our answer before it notices.
constexpr std::chrono::seconds kLingerTime{2};
constexpr size_t kLingerBytes = 4 << 20;

std::chrono::milliseconds sweep_interval(const ServerOptions& options) {
  const auto shortest = std::min(
      {options.header_timeout, options.idle_timeout, std::chrono::milliseconds(kLingerTime)});
  return std::clamp(shortest / 4, std::chrono::milliseconds(2), std::chrono::milliseconds(500));
}

}  // namespace

ServerConnection::ServerConnection(UniqueFd fd, SslPointer ssl, std::string peer,
                                   const ServerOptions& options, IoThread& thread)
    : Connection(std::move(fd), std::move(ssl), std::move(peer), options),
      io_thread(thread),
      descriptor_(thread.io_context()),
      phase_(channel.is_tls() ? Phase::kHandshake : Phase::kHead),
      deadline_(Clock::now() + options.header_timeout) {}

ServerConnection::~ServerConnection() {
  if (descriptor_.is_open()) descriptor_.release();  // the channel closes the socket
  if (on_gone) on_gone(*this);
}

IoThread::IoThread(ServerContext& context, std::function<void(ConnectionPointer)> serve)
    : context_(context),
      serve_(std::move(serve)),
      work_(io_context_.get_executor()),
      sweep_timer_(io_context_),
      sweep_interval_(sweep_interval(context.options)) {
  schedule_sweep();
  thread_ = std::thread([this] { run(); });
}

void IoThread::run() {
  const SigpipeBlock block;
  for (;;) {
    try {
      io_context_.run();
      return;
    } catch (const std::exception& e) {
      // Out of memory for one connection, whose handler held it: it is closed by now.
      log_error("HTTP event thread: {}", e.what());
    }
  }
}

void IoThread::stop() {
  if (!thread_.joinable()) return;
  io_context_.stop();
  thread_.join();
  watched_.clear();
}

void IoThread::watch(ConnectionPointer connection) {
  boost::asio::post(io_context_, [this, moved = std::move(connection)] { begin_watch(moved); });
}

void IoThread::linger(ConnectionPointer connection) {
  boost::asio::post(io_context_, [this, moved = std::move(connection)] { begin_linger(moved); });
}

void IoThread::close_idle() {
  boost::asio::post(io_context_, [this] {
    const std::vector<ConnectionPointer> all(watched_.begin(), watched_.end());
    for (const ConnectionPointer& connection : all)
      if (connection->phase_ != ServerConnection::Phase::kLinger && connection->input().empty())
        take(connection);
  });
}

// Without a further owner, the connection that it returns closes.
ConnectionPointer IoThread::take(const ConnectionPointer& connection) {
  ConnectionPointer taken = connection;
  if (!taken->descriptor_.is_open()) return taken;
  taken->descriptor_.release();
  watched_.erase(taken->place_);
  return taken;
}

void IoThread::begin_watch(const ConnectionPointer& connection) {
  const bool is_idle = connection->input().empty();
  if (context_.draining.load() && is_idle) return;
  if (is_idle) connection->release_memory();
  if (connection->has_left_body()) {
    connection->head_begun_ = true;
    connection->deadline_ = Clock::now() + context_.options.header_timeout;
  } else if (!connection->head_begun_) {
    connection->deadline_ = Clock::now() + context_.options.idle_timeout;
  }
  error_code error;
  connection->descriptor_.assign(connection->channel.fd(), error);
  if (error) {
    log_warning("cannot watch a connection: {}", error.message());
    return;
  }
  connection->place_ = watched_.insert(watched_.end(), connection);
  // TLS may hold bytes already that no poll tells of.
  if (connection->channel.is_tls() || !is_idle)
    on_ready(connection);
  else
    wait(connection, false);
}

void IoThread::begin_linger(const ConnectionPointer& connection) {
  connection->channel.end_writing();
  connection->phase_ = ServerConnection::Phase::kLinger;
  connection->deadline_ = Clock::now() + kLingerTime;
  if (connection->descriptor_.is_open()) {
    on_ready(connection);
  } else {
    connection->consume(connection->input().size());
    error_code error;
    connection->descriptor_.assign(connection->channel.fd(), error);
    if (error) return;
    connection->place_ = watched_.insert(watched_.end(), connection);
    on_ready(connection);
  }
}

void IoThread::wait(const ConnectionPointer& connection, bool for_write) {
  connection->descriptor_.async_wait(for_write ? Descriptor::wait_write : Descriptor::wait_read,
                                     [this, connection](const error_code& error) {
                                       // Cancelled: somebody has taken it.
                                       if (!error && connection->descriptor_.is_open())
                                         on_ready(connection);
                                     });
}

void IoThread::on_ready(const ConnectionPointer& connection) {
  switch (connection->phase_) {
    case ServerConnection::Phase::kHandshake:
      return on_handshake(connection);
    case ServerConnection::Phase::kHead:
      return on_head_bytes(connection);
    case ServerConnection::Phase::kLinger:
      return on_linger(connection);
  }
}

void IoThread::on_handshake(const ConnectionPointer& connection) {
  switch (connection->channel.try_handshake().state) {
    case Channel::State::kWantRead:
      return wait(connection, false);
    case Channel::State::kWantWrite:
      return wait(connection, true);
    case Channel::State::kMoved:
      connection->phase_ = ServerConnection::Phase::kHead;
      return on_head_bytes(connection);
    default:
      log_debug("{}: the TLS handshake failed", connection->peer_address);
      take(connection);
  }
}

void IoThread::on_head_bytes(const ConnectionPointer& connection) {
  for (;;) {
    // A worker that others wait for gives its connection back with a request already in it.
    if (!connection->input().empty()) {
      if (!connection->head_begun_) {
        connection->head_begun_ = true;
        connection->deadline_ = Clock::now() + context_.options.header_timeout;
      }
      const bool had_left_body = connection->has_left_body();
      const HeadScanner::State state = connection->scan();
      if (state == HeadScanner::State::kRefused)
        return refuse(connection, connection->scanner.refusal());
      if (state == HeadScanner::State::kWhole) return on_whole_head(connection);
      if (had_left_body && !connection->has_left_body() && connection->input().empty()) {
        connection->head_begun_ = false;
        connection->deadline_ = Clock::now() + context_.options.idle_timeout;
      }
    }
    const Channel::State state = connection->try_fill();
    if (state == Channel::State::kWantRead) return wait(connection, false);
    if (state == Channel::State::kWantWrite) return wait(connection, true);
    if (state != Channel::State::kMoved) {
      take(connection);
      return;
    }
  }
}

void IoThread::on_whole_head(const ConnectionPointer& connection) {
  if (connection->is_refused)
    return refuse(connection, {503, "too many connections; try again later"});
  connection->head_begun_ = false;
  serve_(take(connection));
}

void IoThread::refuse(const ConnectionPointer& connection, Refusal refusal) {
  Exchange::send_refusal(*connection, context_, refusal);
  begin_linger(connection);
}

void IoThread::on_linger(const ConnectionPointer& connection) {
  static thread_local std::array<std::byte, 64 << 10> discarded;
  for (;;) {
    const Channel::Step step = connection->channel.try_read(discarded);
    connection->lingered_bytes_ += step.bytes;
    if (step.state == Channel::State::kWantRead) return wait(connection, false);
    if (step.state != Channel::State::kMoved || connection->lingered_bytes_ > kLingerBytes) {
      take(connection);
      return;
    }
  }
}

void IoThread::schedule_sweep() {
  sweep_timer_.expires_after(sweep_interval_);
  sweep_timer_.async_wait([this](const error_code& error) {
    if (error) return;
    sweep();
    schedule_sweep();
  });
}

// One pass over all instead of a timer each: a connection's deadline changes twice per request.
void IoThread::sweep() {
  const auto now = Clock::now();
  std::vector<ConnectionPointer> late;
  for (const ConnectionPointer& connection : watched_)
    if (connection->deadline_ <= now) late.push_back(connection);
  for (const ConnectionPointer& connection : late) {
    const bool in_head =
        connection->phase_ == ServerConnection::Phase::kHead && !connection->input().empty();
    if (in_head)
      refuse(connection, {408, "the head did not come in time"});
    else
      take(connection);
  }
}

}  // namespace yard::net_internal
