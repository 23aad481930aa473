// Reunion: how the survivors of a failed group find each other again, without a store and whichever
// ranks are gone.
//
// Every rank keeps a door (a TCP listener) as long as its process is in the group or in one made
// out of it. A door that refuses belongs to a process that has ended; one that takes a connection
// and says nothing belongs to one that is busy or stopped. The lowest rank that lives leads: it
// waits for every rank whose door still opens, and tells all that came their places.
//
// Two groups can never come out of one: ranks of which nobody knows whether they live may be a
// group of their own, so that only the larger part goes on (of equal ones that with the lowest
// rank). Only a firewall that refuses connections in a host's stead is taken for a death.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "collective/collective.h"
#include "collective/point_to_point_internal.h"

namespace yard::collective {

struct ReunionPlace {
  int rank = 0;
  std::vector<std::vector<int>> hosts;  // ranks of each
  std::vector<PeerDoor> doors;          // by rank
  std::string own_address;              // where the others reach us
  std::string session;
  int listener = -1;              // our door
  TlsTunnels* tunnels = nullptr;  // null: plain
};

// A rank's place in the smaller group.
struct Reunited {
  int rank = 0;
  int size = 1;
  int leader = 0;  // its rank in the old group; 0 in the new one
  uint16_t port = 0;
  std::string run_id;
  UniqueFd listener;  // the leader's, at `port`
};

// Blocks for at most the timeout, and for twice as long for each lower rank that is silent.
// kUnavailable: no majority, and who does not answer;
// kInvalidArgument: this rank was left out by another.
Result<Reunited> reunite(const ReunionPlace& place, const ShrinkOptions& options);

// Whether `together` may go on although `in_doubt` may live. Both ranks; pure.
bool is_majority(const std::set<int>& together, const std::set<int>& in_doubt);

}  // namespace yard::collective
