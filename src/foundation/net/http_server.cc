#include "net/http_server.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <unordered_set>

#include "base/log.h"
#include "base/open_files.h"
#include "net/io_thread_internal.h"
#include "net/listen_socket_internal.h"
#include "net/worker_pool_internal.h"

namespace yard {
namespace {

using namespace net_internal;
using boost::system::error_code;
using Descriptor = boost::asio::posix::stream_descriptor;

// Connections beyond the limit that are answered 503 at the same time; more are just closed.
constexpr size_t kRefusedConnectionsMax = 64;
// After the process ran out of file descriptors, accepting waits that long.
constexpr std::chrono::milliseconds kAcceptPause{100};

size_t worker_count(const ServerOptions& options) {
  if (options.worker_count_max > 0) return static_cast<size_t>(options.worker_count_max);
  return std::max<size_t>(64, size_t{4} * std::thread::hardware_concurrency());
}

// Besides connections and what workers open: the libraries' own, listeners, events, log.
constexpr size_t kFilesKept = 64;
constexpr size_t kConnectionsMin = 16;  // a server that takes fewer serves nobody

Result<size_t> connections_that_fit(const ServerOptions& options) {
  const size_t kept =
      kFilesKept + kRefusedConnectionsMax + worker_count(options) * options.files_per_worker;
  const size_t files = open_files_max();
  const size_t needed = std::min(options.connections_max, kConnectionsMin) + kept;
  if (files < needed)
    return Error{Code::kExhausted, fmt::format("this process may open {} files only, and a server "
                                               "needs {}: raise 'ulimit -n'",
                                               files, needed)};
  if (files - kept < options.connections_max)
    log_warning("at most {} connections: this process may open {} files only", files - kept, files);
  return std::min(options.connections_max, files - kept);
}

// The peer sees a reset, which no client takes for the end of a response.
void reset_on_close(int fd) {
  const struct linger at_once { .l_onoff = 1, .l_linger = 0 };
  ::setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
}

// The open connections of a server, to count them and to break them off.
class Registry {
 public:
  void add(Connection& connection) {
    const std::lock_guard lock(mutex_);
    connections_.insert(&connection);
  }
  void remove(Connection& connection) {
    const std::lock_guard lock(mutex_);
    connections_.erase(&connection);
    if (connections_.empty()) empty_.notify_all();
  }
  size_t size() const {
    const std::lock_guard lock(mutex_);
    return connections_.size();
  }
  void wait_empty(std::chrono::milliseconds timeout) {
    std::unique_lock lock(mutex_);
    empty_.wait_for(lock, timeout, [&] { return connections_.empty(); });
  }
  void break_all_off() {
    const std::lock_guard lock(mutex_);
    for (Connection* connection : connections_) connection->channel.break_off();
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable empty_;
  std::unordered_set<Connection*> connections_;
};

}  // namespace

class HttpServer::Impl {
 public:
  Impl(const ServerOptions& options, HttpHandler handler)
      : context_(options, std::move(handler)), workers_(worker_count(options)) {}
  ~Impl() { stop(std::chrono::milliseconds(0)); }

  Status start();
  void stop(std::chrono::milliseconds grace);
  uint16_t port() const { return port_; }
  size_t connections_max() const { return connections_max_; }
  std::string url() const;

 private:
  struct Listener {
    Listener(IoThread& thread, UniqueFd socket)
        : descriptor(thread.io_context(), socket.release()), timer(thread.io_context()) {}
    Descriptor descriptor;
    boost::asio::steady_timer timer;
  };

  void listen_next(Listener& listener);
  void accept_all(Listener& listener);
  void welcome(UniqueFd fd, const sockaddr_storage& address);
  void serve(ConnectionPointer connection);
  void run_requests(ConnectionPointer connection);
  bool stay_for_more(Connection& connection);
  void close_listeners();

  ServerContext context_;
  Registry registry_;
  SslContextPointer tls_;
  uint16_t port_ = 0;
  size_t connections_max_ = 0;
  WorkerPool workers_;
  std::vector<std::unique_ptr<IoThread>> io_threads_;
  std::vector<std::unique_ptr<Listener>> listeners_;  // used on the first io thread
  size_t accepted_count_ = 0;
  std::mutex stop_mutex_;
  bool stopped_ = false;
};

Status HttpServer::Impl::start() {
  const ServerOptions& options = context_.options;
  YARD_ASSIGN(connections_max_, connections_that_fit(options));
  if (!options.tls_certificate_path.empty() || !options.tls_key_path.empty()) {
    YARD_ASSIGN(tls_, make_server_tls_context(options.tls_certificate_path, options.tls_key_path));
  }
  YARD_ASSIGN(ListenSockets listening, listen_on(options.host, options.port));
  port_ = listening.port;
  for (int i = 0; i < std::max(1, options.io_thread_count); ++i)
    io_threads_.push_back(std::make_unique<IoThread>(
        context_, [this](ConnectionPointer connection) { serve(std::move(connection)); }));
  for (UniqueFd& socket : listening.sockets) {
    auto listener = std::make_unique<Listener>(*io_threads_[0], std::move(socket));
    listeners_.push_back(std::move(listener));
  }
  boost::asio::post(io_threads_[0]->io_context(), [this] {
    for (const auto& listener : listeners_) listen_next(*listener);
  });
  return Ok{};
}

std::string HttpServer::Impl::url() const {
  const std::string& host = context_.options.host;
  const bool is_any = host.empty() || host == "0.0.0.0" || host == "::";
  const std::string name = is_any                                ? "127.0.0.1"
                           : host.find(':') == std::string::npos ? host
                                                                 : "[" + host + "]";
  return (tls_ ? "https://" : "http://") + name + ":" + std::to_string(port_);
}

void HttpServer::Impl::listen_next(Listener& listener) {
  listener.descriptor.async_wait(Descriptor::wait_read, [&](const error_code& error) {
    if (!error) accept_all(listener);
  });
}

void HttpServer::Impl::accept_all(Listener& listener) {
  while (listener.descriptor.is_open()) {
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    UniqueFd fd(::accept4(listener.descriptor.native_handle(),
                          reinterpret_cast<sockaddr*>(&address), &size,
                          SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (fd.valid()) {
      welcome(std::move(fd), address);
      continue;
    }
    if (errno == EAGAIN) return listen_next(listener);
    if (errno != EMFILE && errno != ENFILE && errno != ENOMEM && errno != ENOBUFS) continue;
    log_warning("cannot accept a connection: {}", errno_error("accept", errno).message);
    listener.timer.expires_after(kAcceptPause);
    return listener.timer.async_wait([&](const error_code& error) {
      if (!error) accept_all(listener);
    });
  }
}

void HttpServer::Impl::welcome(UniqueFd fd, const sockaddr_storage& address) {
  const int on = 1;
  ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  const size_t open_count = registry_.size();
  const size_t open_count_max = connections_max_;
  if (context_.metrics.connections != nullptr) context_.metrics.connections->add(1);
  if (open_count >= open_count_max && context_.metrics.refused_connections != nullptr)
    context_.metrics.refused_connections->add(1);
  if (open_count >= open_count_max + kRefusedConnectionsMax) return;
  SslPointer ssl(tls_ ? SSL_new(tls_.get()) : nullptr);
  if (tls_ && !ssl) return;
  IoThread& io_thread = *io_threads_[accepted_count_++ % io_threads_.size()];
  auto connection = std::make_shared<ServerConnection>(
      std::move(fd), std::move(ssl), address_text(address), context_.options, io_thread);
  connection->is_refused = open_count >= open_count_max;
  registry_.add(*connection);
  connection->on_gone = [this](ServerConnection& gone) { registry_.remove(gone); };
  io_thread.watch(std::move(connection));
}

void HttpServer::Impl::serve(ConnectionPointer connection) {
  workers_.push(
      [this, moved = std::move(connection)]() mutable { run_requests(std::move(moved)); });
}

bool HttpServer::Impl::stay_for_more(Connection& connection) {
  if (context_.draining.load()) return false;
  if (connection.try_fill() == Channel::State::kMoved) return !workers_.is_pressed();
  // A head that comes in pieces is the event thread's to wait for.
  return connection.input().empty() && workers_.has_slack() &&
         connection.channel.wait_readable(context_.options.linger_timeout) &&
         connection.try_fill() == Channel::State::kMoved;
}

void HttpServer::Impl::run_requests(ConnectionPointer connection) {
  const NextStep next =
      serve_requests(*connection, context_, [&] { return stay_for_more(*connection); });
  IoThread& io_thread = connection->io_thread;
  switch (next) {
    case NextStep::kKeep:
      return io_thread.watch(std::move(connection));
    case NextStep::kLinger:
      return io_thread.linger(std::move(connection));
    case NextStep::kBreak:
      return reset_on_close(connection->channel.fd());
  }
}

void HttpServer::Impl::close_listeners() {
  for (const auto& listener : listeners_) {
    listener->timer.cancel();
    listener->descriptor.close();
  }
}

void HttpServer::Impl::stop(std::chrono::milliseconds grace) {
  const std::lock_guard lock(stop_mutex_);
  if (stopped_ || io_threads_.empty()) return;
  stopped_ = true;
  context_.draining.store(true);
  boost::asio::post(io_threads_[0]->io_context(), [this] { close_listeners(); });
  for (const auto& io_thread : io_threads_) io_thread->close_idle();
  registry_.wait_empty(grace);
  context_.stop.request();
  registry_.break_all_off();
  workers_.stop();
  for (const auto& io_thread : io_threads_) io_thread->stop();
  listeners_.clear();
  io_threads_.clear();
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() = default;

Result<std::unique_ptr<HttpServer>> HttpServer::start(const ServerOptions& options,
                                                      HttpHandler handler) {
  auto impl = std::make_unique<Impl>(options, std::move(handler));
  YARD_TRY(impl->start());
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

uint16_t HttpServer::port() const {
  return impl_->port();
}
size_t HttpServer::connections_max() const {
  return impl_->connections_max();
}
std::string HttpServer::url() const {
  return impl_->url();
}
void HttpServer::stop(std::chrono::milliseconds grace) {
  impl_->stop(grace);
}

}  // namespace yard
