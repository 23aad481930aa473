// Links: one rank of each host, connected to those it works with. The leaders of the hosts form one
// set, their second ranks another, and so on: each carries its part of what crosses hosts.
//
// An abstract transport: TCP here, a fake one for tests in testing/.
#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "collective/call_internal.h"
#include "collective/failure_internal.h"
#include "collective/point_to_point_internal.h"
#include "collective/socket_internal.h"
#include "collective/tls_tunnels_internal.h"

namespace yard::collective {

struct LinksPlace {
  std::vector<int> ranks;  // in the order of hosts
  size_t index = 0;        // ours
};

inline constexpr size_t kNoLink = ~size_t{0};
// Connections to each partner where nobody says how many.
inline constexpr size_t kStreamsTried = 4;
// A message is spread over so many connections only that each carries at least this.
inline constexpr size_t kStreamBytesMin = size_t{64} << 10;

// Blocking, for one thread at a time (the rank's operation thread).
class Links {
 public:
  explicit Links(LinksPlace place) : place_(std::move(place)) {}
  virtual ~Links() = default;
  size_t size() const { return place_.ranks.size(); }
  size_t index() const { return place_.index; }
  const LinksPlace& place() const { return place_; }

  // Sends and receives at once, so that no size can fill both directions and stop. `to` and `from`
  // are partners_of() us, or kNoLink. Each message carries the call: kInvalidArgument when the
  // other side's is not the same. kUnavailable: the other is gone; kDeadlineExceeded. An Error is
  // reported to the Failure; the links are unusable afterwards.
  virtual Status exchange(const CallRecord& call, size_t to, std::span<const std::byte> out,
                          size_t from, std::span<std::byte> in) = 0;

  // Large messages to one partner are spread over several connections: one is bound by its window,
  // by the queue and the core that serve it, and in some clouds by a limit of its own.
  virtual size_t open_streams() const { return 1; }
  virtual size_t used_streams() const { return 1; }
  // Both: in [1, open_streams()], the same at all places. keep_streams() closes the others, once
  // no message is on its way to any place.
  virtual void use_streams(size_t) {}
  virtual void keep_streams(size_t) {}

 private:
  const LinksPlace place_;
};

// The places with which place `index` of `size` is connected: at every distance of a power of two,
// both ways around.
std::vector<size_t> partners_of(size_t index, size_t size);

struct LinksDoor {
  int listener = -1;                             // TCP
  const std::vector<PeerDoor>* doors = nullptr;  // by rank
  std::string session;
  TlsTunnels* tunnels = nullptr;  // null: plain
  // Connections to each partner, and how many of them are used at first; the same on all ranks.
  size_t stream_count = 1;
  size_t used_count = 1;
};
// Connects to the partners after us and takes the connections of those before.
Result<std::unique_ptr<Links>> connect_links(const LinksPlace& place, const LinksDoor& door,
                                             Failure& failure,
                                             std::chrono::milliseconds operation_timeout,
                                             const Patience& patience);

}  // namespace yard::collective
