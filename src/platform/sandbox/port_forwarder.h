// PortForwarder: makes a TCP port of this machine reachable at the same address inside a network
// namespace: what connects there is connected here. No route, no address translation.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"

namespace yard::sandbox {

struct ForwardOptions {
  int network_namespace_fd = -1;      // where is listened
  std::string address = "127.0.0.1";  // IPv4, in both places
  uint16_t port = 0;
};

// Serves on a thread of its own until destroyed; at most 1024 connections at once, 512 KiB each.
class PortForwarder {
 public:
  // Needs root. kUnavailable: the port is taken inside, or entering is not allowed.
  static Result<std::unique_ptr<PortForwarder>> start(const ForwardOptions& options);
  ~PortForwarder();

 private:
  struct Impl;
  explicit PortForwarder(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace yard::sandbox
