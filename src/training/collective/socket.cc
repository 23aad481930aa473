#include "collective/rendezvous.h"
#include "collective/socket_internal.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>

namespace yard::collective {
namespace {

constexpr int kBacklog = 4096;
constexpr int kSocketFlags = SOCK_NONBLOCK | SOCK_CLOEXEC;

int milliseconds_left(std::chrono::steady_clock::time_point deadline) {
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  return static_cast<int>(std::clamp<int64_t>(left.count(), 0, 3'600'000));
}

using AddressList = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

Result<AddressList> resolve(const std::string& address, uint16_t port) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error == EAI_AGAIN) return Error{Code::kUnavailable, address + ": " + ::gai_strerror(error)};
  if (error != 0) return Error{Code::kInvalidArgument, address + ": " + ::gai_strerror(error)};
  return AddressList(found, &::freeaddrinfo);
}

std::string numeric(const sockaddr_storage& address, socklen_t size_bytes) {
  std::array<char, NI_MAXHOST> text{};
  if (::getnameinfo(reinterpret_cast<const sockaddr*>(&address), size_bytes, text.data(),
                    text.size(), nullptr, 0, NI_NUMERICHOST) != 0)
    return {};
  return text.data();
}

// Connecting to a free port of our own machine may connect a socket to itself.
bool is_connected_to_itself(int fd) {
  sockaddr_storage ours{};
  sockaddr_storage theirs{};
  socklen_t ours_bytes = sizeof ours;
  socklen_t theirs_bytes = sizeof theirs;
  return ::getsockname(fd, reinterpret_cast<sockaddr*>(&ours), &ours_bytes) == 0 &&
         ::getpeername(fd, reinterpret_cast<sockaddr*>(&theirs), &theirs_bytes) == 0 &&
         ours_bytes == theirs_bytes && std::memcmp(&ours, &theirs, ours_bytes) == 0;
}

Result<UniqueFd> finish_connect(UniqueFd fd, const sockaddr* address, socklen_t size_bytes,
                                const std::string& name, const Patience& patience,
                                bool* is_refused = nullptr) {
  const auto lost = [&](int error) {
    if (is_refused != nullptr) *is_refused = error == ECONNREFUSED;
    return Error{Code::kUnavailable, name + ": " + std::strerror(error)};
  };
  if (::connect(fd.get(), address, size_bytes) != 0) {
    if (errno != EINPROGRESS && errno != EINTR) return lost(errno);
    YARD_TRY(wait_for_events(fd.get(), POLLOUT, patience));
    int error = 0;
    socklen_t error_bytes = sizeof error;
    ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &error_bytes);
    if (error != 0) return lost(error);
  }
  return fd;
}

socklen_t abstract_address(const std::string& name, sockaddr_un* address) {
  YARD_CHECK(name.size() + 1 < sizeof address->sun_path);
  address->sun_family = AF_UNIX;
  // The leading NUL makes it abstract.
  std::memcpy(address->sun_path + 1, name.data(), name.size());
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

}  // namespace

Result<uint16_t> free_loopback_port() {
  YARD_ASSIGN(const UniqueFd listener, listen_tcp("127.0.0.1", 0));
  return local_port(listener.get());
}

Result<std::string> address_towards(const std::string& host) {
  constexpr uint16_t kAnyPort = 9;  // nothing is sent
  YARD_ASSIGN(const AddressList found, resolve(host, kAnyPort));
  UniqueFd fd(::socket(found->ai_family, SOCK_DGRAM | kSocketFlags, 0));
  if (!fd.valid()) return errno_error("socket", errno);
  if (::connect(fd.get(), found->ai_addr, found->ai_addrlen) != 0)
    return Error{Code::kUnavailable, host + ": " + std::strerror(errno)};
  return local_address(fd.get());
}

Status wait_for_events(int fd, short events, const Patience& patience) {
  while (true) {
    std::array<pollfd, 3> polled{
        pollfd{.fd = fd, .events = events, .revents = 0},
        pollfd{.fd = patience.stop.fd(), .events = POLLIN, .revents = 0},
        pollfd{
            .fd = patience.failure ? patience.failure->fd() : -1, .events = POLLIN, .revents = 0}};
    const int left_ms = milliseconds_left(patience.deadline);
    const int ready = ::poll(polled.data(), polled.size(), left_ms);
    if (ready < 0 && errno != EINTR) return errno_error("poll", errno);
    if (ready < 0) continue;
    if (polled[2].revents != 0) return patience.failure->status();
    if (polled[1].revents != 0) return Error{Code::kCancelled, "stop was asked"};
    if (polled[0].revents != 0) return Ok{};
    if (left_ms == 0) return Error{Code::kDeadlineExceeded, "timed out"};
  }
}

Result<UniqueFd> listen_tcp(const std::string& address, uint16_t port) {
  YARD_ASSIGN(const AddressList found, resolve(address, port));
  UniqueFd fd(::socket(found->ai_family, SOCK_STREAM | kSocketFlags, 0));
  if (!fd.valid()) return errno_error("socket", errno);
  const int on = 1;
  // A restarted run must not wait for the old connections' TIME_WAIT.
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(fd.get(), found->ai_addr, found->ai_addrlen) != 0 ||
      ::listen(fd.get(), kBacklog) != 0) {
    if (errno == EADDRINUSE)
      return Error{Code::kInvalidArgument, fmt::format("port {} of {} is taken", port, address)};
    if (errno == EADDRNOTAVAIL)
      return Error{Code::kInvalidArgument, address + ": not an address of this host"};
    return errno_error(fmt::format("listening on {}:{}", address, port), errno);
  }
  return fd;
}

Result<UniqueFd> connect_tcp(const std::string& address, uint16_t port, const Patience& patience,
                             bool* is_refused) {
  YARD_ASSIGN(const AddressList found, resolve(address, port));
  UniqueFd fd(::socket(found->ai_family, SOCK_STREAM | kSocketFlags, 0));
  if (!fd.valid()) return errno_error("socket", errno);
  YARD_ASSIGN(fd, finish_connect(std::move(fd), found->ai_addr, found->ai_addrlen,
                                 fmt::format("{}:{}", address, port), patience, is_refused));
  if (is_connected_to_itself(fd.get())) {
    if (is_refused != nullptr) *is_refused = true;
    return Error{Code::kUnavailable, fmt::format("{}:{}: nobody listens", address, port)};
  }
  set_tcp_options(fd.get());
  return fd;
}

uint16_t local_port(int fd) {
  sockaddr_storage address{};
  socklen_t size_bytes = sizeof address;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size_bytes) != 0) return 0;
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6*>(&address)->sin6_port
                   : reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
}

std::string local_address(int fd) {
  sockaddr_storage address{};
  socklen_t size_bytes = sizeof address;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size_bytes) != 0) return {};
  return numeric(address, size_bytes);
}

std::string peer_address(int fd) {
  sockaddr_storage address{};
  socklen_t size_bytes = sizeof address;
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&address), &size_bytes) != 0) return {};
  return numeric(address, size_bytes);
}

void set_tcp_options(int fd) {
  const auto set = [fd](int level, int name, int value) {
    ::setsockopt(fd, level, name, &value, sizeof value);
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 5);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 2);
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
}

Result<UniqueFd> listen_abstract(const std::string& name) {
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | kSocketFlags, 0));
  if (!fd.valid()) return errno_error("socket", errno);
  sockaddr_un address{};
  const socklen_t size_bytes = abstract_address(name, &address);
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), size_bytes) != 0 ||
      ::listen(fd.get(), kBacklog) != 0)
    return errno_error("listening on the unix socket @" + name, errno);
  return fd;
}

Result<UniqueFd> connect_abstract(const std::string& name, const Patience& patience) {
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | kSocketFlags, 0));
  if (!fd.valid()) return errno_error("socket", errno);
  sockaddr_un address{};
  const socklen_t size_bytes = abstract_address(name, &address);
  return finish_connect(std::move(fd), reinterpret_cast<const sockaddr*>(&address), size_bytes,
                        "@" + name, patience);
}

Result<UniqueFd> accept_connection(int listener, const Patience& patience) {
  while (true) {
    UniqueFd fd(::accept4(listener, nullptr, nullptr, kSocketFlags));
    if (fd.valid()) return fd;
    // The others mean that this one connection died in the queue (accept(2)).
    if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == EINVAL || errno == EBADF)
      return errno_error("accept", errno);
    if (errno == EAGAIN || errno == EWOULDBLOCK)
      YARD_TRY(wait_for_events(listener, POLLIN, patience));
  }
}

std::string neighbour_hello(const std::string& session, const NeighbourName& name) {
  return FrameWriter(FrameType::kNeighbour)
      .text(session)
      .u32(static_cast<uint32_t>(name.rank))
      .u8(name.stream)
      .u8(name.stream_count)
      .bytes();
}

std::optional<NeighbourName> name_of_neighbour(const Frame& frame, const std::string& session) {
  FrameFields fields(frame.payload);
  const std::string theirs = fields.text();
  NeighbourName name;
  name.rank = static_cast<int>(fields.u32());
  name.stream = fields.u8();
  name.stream_count = fields.u8();
  if (frame.type != FrameType::kNeighbour || !fields.complete() || theirs != session ||
      name.stream >= name.stream_count)
    return std::nullopt;
  return name;
}

Result<Neighbour> accept_neighbour(int listener, Door door, const std::string& session,
                                   TlsTunnels* tunnels, const Patience& patience) {
  while (true) {
    YARD_ASSIGN(UniqueFd fd, accept_connection(listener, patience));
    if (door == Door::kUnix && peer_process(fd.get()).uid != ::geteuid()) continue;
    if (door == Door::kTcp) {
      set_tcp_options(fd.get());
      const std::string peer = peer_address(fd.get());
      YARD_ASSIGN(fd, secured(tunnels, std::move(fd), TlsSide::kServer, peer));
    }
    Patience short_patience = patience;
    short_patience.deadline =
        std::min(patience.deadline, std::chrono::steady_clock::now() + kHelloTimeout);
    FrameReader reader(kSmallPayloadBytesMax);
    auto frame = receive_frame(fd.get(), reader, short_patience);
    if (!frame) continue;
    if (const auto name = name_of_neighbour(*frame, session))
      return Neighbour{*name, std::move(fd)};
  }
}

bool would_block(int error) {
  return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

Status send_all(int fd, std::string_view bytes, const Patience& patience) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      bytes.remove_prefix(static_cast<size_t>(sent));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      YARD_TRY(wait_for_events(fd, POLLOUT, patience));
    } else if (errno != EINTR) {
      return Error{Code::kUnavailable, std::string("connection lost: ") + std::strerror(errno)};
    }
  }
  return Ok{};
}

Result<Frame> receive_frame(int fd, FrameReader& reader, const Patience& patience) {
  while (true) {
    YARD_ASSIGN(std::optional<Frame> frame, reader.read(fd));
    if (frame) return std::move(*frame);
    YARD_TRY(wait_for_events(fd, POLLIN, patience));
  }
}

Status send_descriptor(int socket, int fd, const Patience& patience) {
  char byte = 'F';
  iovec data{.iov_base = &byte, .iov_len = 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  while (::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) != 1) {
    if (errno == EAGAIN || errno == EWOULDBLOCK)
      YARD_TRY(wait_for_events(socket, POLLOUT, patience));
    else if (errno != EINTR)
      return Error{Code::kUnavailable, std::string("handing over memory: ") + std::strerror(errno)};
  }
  return Ok{};
}

Result<UniqueFd> receive_descriptor(int socket, const Patience& patience) {
  char byte = 0;
  iovec data{.iov_base = &byte, .iov_len = 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  ssize_t got = -1;
  while (got < 0) {
    YARD_TRY(wait_for_events(socket, POLLIN, patience));
    message = {};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    got = ::recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got < 0 && errno != EINTR && errno != EAGAIN && errno != EWOULDBLOCK)
      return Error{Code::kUnavailable, std::string("taking over memory: ") + std::strerror(errno)};
  }
  if (got == 0) return Error{Code::kUnavailable, "connection closed"};
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header == nullptr || header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS ||
      header->cmsg_len != CMSG_LEN(sizeof(int)))
    return Error{Code::kCorrupt, "a message without the memory that was expected"};
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
  return UniqueFd(fd);
}

PeerProcess peer_process(int unix_socket) {
  ucred credentials{};
  socklen_t size_bytes = sizeof credentials;
  if (::getsockopt(unix_socket, SOL_SOCKET, SO_PEERCRED, &credentials, &size_bytes) != 0) return {};
  return {.pid = credentials.pid, .uid = credentials.uid};
}

UniqueFd open_pidfd(int pid) {
  if (pid <= 0) return {};
  return UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
}

}  // namespace yard::collective
