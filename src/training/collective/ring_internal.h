// Ring: one rank of each host, each connected by TCP to the next and the one before. The leaders
// form one, the second ranks of the hosts another, and so on: each carries its part of the data.
//
// Blocking, for one thread at a time (the rank's operation thread). Every step waits for the
// neighbours at most operation_timeout. After an Error, which is reported to the Failure, the ring
// is unusable.
#pragma once

#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "collective/call_internal.h"
#include "collective/element_internal.h"
#include "collective/failure_internal.h"
#include "collective/socket_internal.h"

namespace yard::collective {

struct RingPlace {
  std::vector<int> ranks;  // in the order of hosts
  size_t index = 0;        // ours
  size_t size() const { return ranks.size(); }
};

struct RingSockets {
  UniqueFd next;
  UniqueFd previous;
};

class Ring {
 public:
  Ring(RingPlace place, RingSockets sockets, Failure& failure,
       std::chrono::milliseconds operation_timeout);

  size_t size() const { return place_.size(); }
  size_t index() const { return place_.index; }

  // All of them have come, with the same call; kInvalidArgument names two that differ.
  Status agree(const CallRecord& call);
  // inout = reduction over all, elements in the wide form of `dtype`.
  Status all_reduce(const CallRecord& call, std::byte* inout, size_t element_count);
  // blocks[i] is the one of place i; ours is there already.
  Status all_gather(const CallRecord& call, std::span<const std::span<std::byte>> blocks);
  // From place `root_index` to all.
  Status broadcast(const CallRecord& call, std::span<std::byte> inout, size_t root_index);

 private:
  // Sends and receives at once, so that no size can fill both directions and stop.
  Status exchange(const CallRecord& call, std::span<const std::byte> out, std::span<std::byte> in);
  Status move_some(const CallRecord& call, std::span<const std::byte>& out,
                   std::span<std::byte>& in, bool* moved);
  Error lost(const CallRecord& call, size_t place_index, int error);
  size_t next_index() const { return (place_.index + 1) % size(); }
  size_t previous_index() const { return (place_.index + size() - 1) % size(); }

  const RingPlace place_;
  RingSockets sockets_;
  Failure& failure_;
  const std::chrono::milliseconds operation_timeout_;
  std::vector<std::byte> scratch_;
};

struct RingDoor {
  int listener = -1;  // TCP
  std::string next_address;
  uint16_t next_port = 0;
  std::string session;
};
// Connects to the next and takes the connection of the one before.
Result<RingSockets> connect_ring(const RingPlace& place, const RingDoor& door,
                                 const Patience& patience);

}  // namespace yard::collective
