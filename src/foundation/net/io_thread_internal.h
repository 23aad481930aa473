// IoThread: watches the connections that no worker serves: those in a TLS handshake, those whose
// request head is coming, idle ones, and those that are read empty before they are closed.
#pragma once

// Each io_context is run by one thread and given work under its mutex, so Asio's fences around
// handlers order nothing; the thread sanitizer does not know fences.
#define BOOST_ASIO_DISABLE_FENCED_BLOCK

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <functional>
#include <list>
#include <memory>
#include <thread>

#include "net/exchange_internal.h"

namespace yard::net_internal {

class IoThread;

// A connection and its place in the server. Owned by whoever works on it: an IoThread, a job of
// the worker pool, or a message between the two.
class ServerConnection : public Connection {
 public:
  enum class Phase { kHandshake, kHead, kLinger };
  using Clock = std::chrono::steady_clock;

  ServerConnection(UniqueFd fd, SslPointer ssl, std::string peer, const ServerOptions& options,
                   IoThread& io_thread);
  ~ServerConnection();

  IoThread& io_thread;
  bool is_refused = false;  // one too many: answered 503
  // Called by the destructor, before the socket closes.
  std::function<void(ServerConnection&)> on_gone;

 private:
  friend class IoThread;
  boost::asio::posix::stream_descriptor descriptor_;  // the socket, while the thread watches it
  Phase phase_;
  bool head_begun_ = true;  // a fresh connection has header_timeout from the start
  Clock::time_point deadline_;
  size_t lingered_bytes_ = 0;
  std::list<std::shared_ptr<ServerConnection>>::iterator place_;
};

using ConnectionPointer = std::shared_ptr<ServerConnection>;

class IoThread {
 public:
  // `serve` is called on this thread with a connection whose input may hold a whole head.
  IoThread(ServerContext& context, std::function<void(ConnectionPointer)> serve);
  ~IoThread() { stop(); }

  // From any thread. A connection that nobody may serve any more is closed.
  void watch(ConnectionPointer connection);
  void linger(ConnectionPointer connection);  // after its last response
  // Closes the idle connections; those with part of a request stay.
  void close_idle();
  // Ends the thread; what it watched is closed.
  void stop();

  boost::asio::io_context& io_context() { return io_context_; }

 private:
  using Clock = ServerConnection::Clock;

  void run();
  void begin_watch(const ConnectionPointer& connection);
  void begin_linger(const ConnectionPointer& connection);
  void wait(const ConnectionPointer& connection, bool for_write);
  void on_ready(const ConnectionPointer& connection);
  void on_handshake(const ConnectionPointer& connection);
  void on_head_bytes(const ConnectionPointer& connection);
  void on_whole_head(const ConnectionPointer& connection);
  void on_linger(const ConnectionPointer& connection);
  void refuse(const ConnectionPointer& connection, Refusal refusal);
  ConnectionPointer take(const ConnectionPointer& connection);
  void schedule_sweep();
  void sweep();

  ServerContext& context_;
  const std::function<void(ConnectionPointer)> serve_;
  boost::asio::io_context io_context_{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_;
  boost::asio::steady_timer sweep_timer_;
  std::chrono::milliseconds sweep_interval_;
  std::list<ConnectionPointer> watched_;  // touched by this thread only
  std::thread thread_;
};

}  // namespace yard::net_internal
