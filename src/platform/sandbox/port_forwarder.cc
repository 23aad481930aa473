#include "sandbox/port_forwarder.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <list>
#include <thread>
#include <vector>

#include "base/file.h"
#include "base/log.h"
#include "base/stop_token.h"

namespace yard::sandbox {
namespace {

constexpr size_t kConnectionsMax = 1024;
constexpr size_t kBufferBytes = 256 << 10;

Result<sockaddr_in> to_sockaddr(const ForwardOptions& options) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(options.port);
  if (::inet_pton(AF_INET, options.address.c_str(), &address.sin_addr) != 1)
    return Error{Code::kInvalidArgument, options.address + ": no IPv4 address"};
  return address;
}

// A socket belongs to the namespace in which its thread was when it was made.
Result<UniqueFd> listen_inside(const ForwardOptions& options) {
  YARD_ASSIGN(const sockaddr_in address, to_sockaddr(options));
  Result<UniqueFd> listener = Error{Code::kInternal, "no thread"};
  std::thread inside([&] {
    const std::string what = fmt::format("{}:{} in the sandbox", options.address, options.port);
    if (::setns(options.network_namespace_fd, CLONE_NEWNET) != 0) {
      listener = Error{Code::kUnavailable, errno_error(what, errno).message};
      return;
    }
    UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const int on = 1;
    if (fd.valid()) ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (!fd.valid() ||
        ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
        ::listen(fd.get(), SOMAXCONN) != 0)
      listener = Error{Code::kUnavailable, errno_error(what, errno).message};
    else
      listener = std::move(fd);
  });
  inside.join();
  return listener;
}

// Bytes on their way in one direction.
struct Flow {
  int from = -1;
  int to = -1;
  std::vector<char> buffer = std::vector<char>(kBufferBytes);
  size_t begin = 0;
  size_t end = 0;
  bool from_ended = false;
  bool closed = false;  // the end was passed on

  bool wants_read() const { return !from_ended && end < buffer.size(); }
  bool wants_write() const { return begin < end; }
  bool pump();
};

// False when the connection is broken.
bool Flow::pump() {
  if (wants_read()) {
    const ssize_t got = ::recv(from, buffer.data() + end, buffer.size() - end, MSG_DONTWAIT);
    if (got == 0) from_ended = true;
    if (got > 0) end += size_t(got);
    if (got < 0 && errno != EAGAIN && errno != EINTR) return false;
  }
  while (wants_write()) {
    const ssize_t put = ::send(to, buffer.data() + begin, end - begin, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0 && errno == EAGAIN) break;
    if (put < 0) return errno == EINPROGRESS || errno == ENOTCONN;
    begin += size_t(put);
  }
  if (begin == end) begin = end = 0;
  if (from_ended && begin == end && !closed) {
    ::shutdown(to, SHUT_WR);
    closed = true;
  }
  return true;
}

struct Connection {
  UniqueFd inner;
  UniqueFd outer;
  Flow up;
  Flow down;
  bool connected = false;
};

short events_of(const Flow& out, const Flow& in) {
  return static_cast<short>((out.wants_read() ? POLLIN : 0) | (in.wants_write() ? POLLOUT : 0));
}

}  // namespace

struct PortForwarder::Impl {
  sockaddr_in address = {};
  UniqueFd listener;
  StopSource stop;
  std::list<Connection> connections;
  std::thread thread;

  void run();
  void accept_some();
  bool serve(Connection& connection, short inner_events, short outer_events);
};

void PortForwarder::Impl::accept_some() {
  while (connections.size() < kConnectionsMax) {
    UniqueFd inner(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!inner.valid()) return;
    UniqueFd outer(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!outer.valid()) return;
    const int on = 1;
    ::setsockopt(inner.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    ::setsockopt(outer.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (::connect(outer.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 &&
        errno != EINPROGRESS)
      continue;  // closing tells the client
    Connection& connection = connections.emplace_back();
    connection.up.from = connection.down.to = inner.get();
    connection.up.to = connection.down.from = outer.get();
    connection.inner = std::move(inner);
    connection.outer = std::move(outer);
  }
}

// False when it is over.
bool PortForwarder::Impl::serve(Connection& connection, short inner_events, short outer_events) {
  if (!connection.connected) {
    if (outer_events == 0) return true;
    int error = 0;
    socklen_t size = sizeof error;
    ::getsockopt(connection.outer.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) return false;
    connection.connected = true;
  }
  if ((inner_events | outer_events) == 0) return true;
  if (!connection.up.pump() || !connection.down.pump()) return false;
  return !(connection.up.closed && connection.down.closed);
}

void PortForwarder::Impl::run() {
  std::vector<pollfd> items;
  while (!stop.token().stopped()) {
    items = {{.fd = stop.token().fd(), .events = POLLIN, .revents = 0},
             {.fd = connections.size() < kConnectionsMax ? listener.get() : -1,
              .events = POLLIN,
              .revents = 0}};
    for (const Connection& c : connections) {
      const bool waits = !c.connected;
      items.push_back(
          {.fd = waits ? -1 : c.inner.get(), .events = events_of(c.up, c.down), .revents = 0});
      items.push_back({.fd = c.outer.get(),
                       .events = waits ? short(POLLOUT) : events_of(c.down, c.up),
                       .revents = 0});
      // poll() reports a hang-up even where nothing is asked for: it would spin.
      if (items[items.size() - 2].events == 0) items[items.size() - 2].fd = -1;
      if (items.back().events == 0) items.back().fd = -1;
    }
    if (::poll(items.data(), items.size(), -1) < 0 && errno != EINTR) return;
    size_t at = 2;
    for (auto it = connections.begin(); it != connections.end(); at += 2) {
      const bool goes_on = serve(*it, items[at].revents, items[at + 1].revents);
      it = goes_on ? std::next(it) : connections.erase(it);
    }
    if (items[1].revents != 0) accept_some();
  }
}

PortForwarder::PortForwarder(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

PortForwarder::~PortForwarder() {
  impl_->stop.request();
  if (impl_->thread.joinable()) impl_->thread.join();
}

Result<std::unique_ptr<PortForwarder>> PortForwarder::start(const ForwardOptions& options) {
  auto impl = std::make_unique<Impl>();
  YARD_ASSIGN(impl->address, to_sockaddr(options));
  YARD_ASSIGN(impl->listener, listen_inside(options));
  Impl* const raw = impl.get();
  std::unique_ptr<PortForwarder> forwarder(new PortForwarder(std::move(impl)));
  raw->thread = std::thread([raw] { raw->run(); });
  return forwarder;
}

}  // namespace yard::sandbox
