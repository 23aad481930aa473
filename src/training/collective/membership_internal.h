// The first part of a rendezvous: who is there, and where.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/file.h"
#include "collective/point_to_point_internal.h"
#include "collective/rendezvous.h"
#include "collective/socket_internal.h"
#include "collective/tls_tunnels_internal.h"

namespace yard::collective {

// What a rank says of itself.
struct Hello {
  uint32_t rank = 0;
  uint32_t world_size = 0;
  uint64_t generation = 0;
  std::string run_id;
  std::string host_identity;
  std::string host_name;      // for people; may be empty
  uint16_t data_port = 0;     // its TCP listener
  uint16_t reunion_port = 0;  // likewise, for the survivors of a failure
  std::string team_name;      // its abstract unix listener
};
std::string encode_hello(const Hello& hello);
Result<Hello> decode_hello(const Frame& frame);

struct Welcome {
  std::string session;                  // a secret that only this group's ranks know
  std::vector<std::vector<int>> hosts;  // ranks of each, ascending; by ascending first rank
  std::vector<PeerDoor> doors;          // by rank; is_near is not part of it
};
std::string encode_welcome(const Welcome& welcome, int world_size);
// kCorrupt unless every rank below `world_size` is in exactly one host, and none is empty.
Result<Welcome> decode_welcome(const Frame& frame, int world_size);

// What a rank listens on.
struct Doors {
  UniqueFd data;     // TCP
  UniqueFd team;     // abstract unix socket
  UniqueFd reunion;  // TCP, as long as the group lives
  std::string team_name;
};
Result<Doors> open_doors(const std::string& address);

struct Membership {
  Welcome welcome;
  Doors doors;
  std::map<int, UniqueFd> sockets;  // rank 0: to every rank; others: to rank 0
};

// Rank 0: waits for all at `listener`, answers all. Everybody gets the Error if there is one.
Result<Membership> gather_members(const RendezvousOptions& options, UniqueFd listener,
                                  const std::string& host_identity, TlsTunnels* tunnels,
                                  const Patience& patience);
// Every other rank. `tunnels` may be null, here and above.
Result<Membership> join_members(const RendezvousOptions& options, const std::string& host_identity,
                                TlsTunnels* tunnels, const Patience& patience);

// "rank 3", "ranks 3 and 5", "ranks 3, 5, 6 and 12 more".
std::string name_ranks(const std::vector<int>& ranks);

}  // namespace yard::collective
