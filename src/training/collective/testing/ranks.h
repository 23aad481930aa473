// For tests: ranks as threads of this process, each with a Group of its own.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "collective/collective.h"
#include "collective/rendezvous.h"

namespace yard::collective {

using Hosts = std::vector<std::string>;  // the host of each rank

// "aab" for {"a", "a", "b"}: the name of a parametrised test.
std::string joined(const Hosts& hosts);

template <typename T>
std::span<std::byte> bytes_of(std::vector<T>& values) {
  return std::as_writable_bytes(std::span(values));
}

// A port of 127.0.0.1 that nobody listens on.
uint16_t free_port();

// Options of each rank of a group at a free port. hosts[r] is the host identity of rank r; its
// size is the world size.
std::vector<RendezvousOptions> options_for(const Hosts& hosts);
// `count` ranks on one host.
Hosts one_host(size_t count);

// Connects all ranks, each on its own thread, and runs `body` on each with its Group. Fails the
// test when a rank cannot connect.
void on_ranks(const std::vector<RendezvousOptions>& options,
              const std::function<void(Group&)>& body);

// Only connects; the results in the order of `options`.
std::vector<Result<std::unique_ptr<Group>>> connect_all(
    const std::vector<RendezvousOptions>& options);

}  // namespace yard::collective
