// Listening sockets for a host and port, and what a socket's other end is called.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/result.h"

namespace yard::net_internal {

struct ListenSockets {
  std::vector<UniqueFd> sockets;  // non-blocking, one per address of the host
  uint16_t port = 0;              // the same for all
};

// kUnavailable: the port is taken; kInvalidArgument: no such host here.
Result<ListenSockets> listen_on(const std::string& host, uint16_t port);

// "127.0.0.1:80", "[::1]:80"; "local" for a socket that is not TCP's.
std::string address_text(const sockaddr_storage& address);

}  // namespace yard::net_internal
