// For tests: ranks as threads of this process, each with a Group of its own.
#pragma once

#include <chrono>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collective/collective.h"
#include "collective/rendezvous.h"

namespace yard::collective {

using Hosts = std::vector<std::string>;  // the host of each rank

// Under the thread sanitizer each access costs tens of times as much: fewer layouts and rounds, of
// the same kinds.
#if defined(__SANITIZE_THREAD__)
inline constexpr bool kIsSlow = true;
#else
inline constexpr bool kIsSlow = false;
#endif

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

// What shows only when a time-out is over needs all others to be in time, and how long those take
// the load of the machine knows alone. So `attempt` runs with ever longer time-outs, from `first`
// to a minute, until it has no complaint; the last complaint fails the test.
void with_patience(std::chrono::milliseconds first,
                   const std::function<std::string(std::chrono::milliseconds timeout)>& attempt);
// For it: connects all ranks, runs `body` on each if all have come, and returns what the ranks
// complain of, each in a line.
std::string complaints_of(const std::vector<RendezvousOptions>& options,
                          const std::function<std::string(Group&)>& body);
// Likewise: empty if `error` is of that code and names `text`.
std::string complaint_unless(const Error& error, Code code, std::string_view text);

// Only connects; the results in the order of `options`.
std::vector<Result<std::unique_ptr<Group>>> connect_all(
    const std::vector<RendezvousOptions>& options);

}  // namespace yard::collective
