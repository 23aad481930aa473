#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

#include "net/listen_socket_internal.h"

namespace yard::net_internal {
namespace {

// Full accept queues drop connections for a second; the kernel caps this at net.core.somaxconn.
constexpr int kBacklog = 4096;

struct AddrInfoDeleter {
  void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};
using AddrInfoPointer = std::unique_ptr<addrinfo, AddrInfoDeleter>;

Result<AddrInfoPointer> resolve(const std::string& host) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* list = nullptr;
  const int error = ::getaddrinfo(host.empty() ? nullptr : host.c_str(), "0", &hints, &list);
  if (error != 0)
    return Error{Code::kInvalidArgument,
                 "cannot listen on host '" + host + "': " + ::gai_strerror(error)};
  return AddrInfoPointer(list);
}

void set_port(sockaddr* address, uint16_t port) {
  if (address->sa_family == AF_INET6)
    reinterpret_cast<sockaddr_in6*>(address)->sin6_port = htons(port);
  else
    reinterpret_cast<sockaddr_in*>(address)->sin_port = htons(port);
}

uint16_t port_of(const sockaddr_storage& address) {
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                   : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

void set_on(int fd, int level, int option) {
  const int on = 1;
  ::setsockopt(fd, level, option, &on, sizeof on);
}

Error bind_error(const std::string& where, int errno_value) {
  if (errno_value == EADDRINUSE)
    return {Code::kUnavailable, "cannot listen on " + where +
                                    ": the port is taken by another program; end that program or "
                                    "choose another port (0: any free one)"};
  if (errno_value == EACCES)
    return {Code::kInvalidArgument,
            "cannot listen on " + where + ": not permitted; choose a port from 1024 on"};
  if (errno_value == EADDRNOTAVAIL)
    return {Code::kInvalidArgument,
            "cannot listen on " + where + ": this machine does not have that address"};
  return errno_error("cannot listen on " + where, errno_value);
}

Result<UniqueFd> listen_at(const addrinfo& info) {
  sockaddr_storage address{};
  std::memcpy(&address, info.ai_addr, info.ai_addrlen);
  const std::string where = address_text(address);
  UniqueFd fd(::socket(info.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return bind_error(where, errno);
  set_on(fd.get(), SOL_SOCKET, SO_REUSEADDR);
  if (info.ai_family == AF_INET6) set_on(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY);
  if (::bind(fd.get(), info.ai_addr, info.ai_addrlen) != 0 || ::listen(fd.get(), kBacklog) != 0)
    return bind_error(where, errno);
  return fd;
}

uint16_t bound_port(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  return port_of(address);
}

}  // namespace

std::string address_text(const sockaddr_storage& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (address.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
    ::inet_ntop(AF_INET6, &v6.sin6_addr, text.data(), text.size());
    return "[" + std::string(text.data()) + "]:" + std::to_string(port_of(address));
  }
  if (address.ss_family != AF_INET) return "local";
  const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
  ::inet_ntop(AF_INET, &v4.sin_addr, text.data(), text.size());
  return std::string(text.data()) + ":" + std::to_string(port_of(address));
}

Result<ListenSockets> listen_on(const std::string& host, uint16_t port) {
  YARD_ASSIGN(const AddrInfoPointer list, resolve(host));
  ListenSockets listening{.port = port};
  Error last{Code::kInvalidArgument, "host '" + host + "' has no address"};
  for (addrinfo* info = list.get(); info != nullptr; info = info->ai_next) {
    set_port(info->ai_addr, listening.port);
    auto socket = listen_at(*info);
    if (!socket) {
      last = std::move(socket).error();
      if (last.code == Code::kUnavailable) return last;
      continue;  // IPv6 may be off on this machine while the name has an IPv6 address
    }
    listening.port = bound_port(socket->get());
    listening.sockets.push_back(*std::move(socket));
  }
  if (listening.sockets.empty()) return last;
  return listening;
}

}  // namespace yard::net_internal
