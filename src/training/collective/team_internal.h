// Team: the ranks of one host, and the shared memory through which they work together.
//
// The memory holds a barrier, each rank's CallRecords, and for each rank room for data: two small
// slots (used in turn by operation number, so that a small operation needs one barrier only), and
// a stage for larger ones. With several hosts there is one result area besides.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "collective/call_internal.h"
#include "collective/failure_internal.h"
#include "collective/shared_memory_internal.h"
#include "collective/socket_internal.h"

namespace yard::collective {

inline constexpr size_t kSmallSlotBytes = size_t{128} << 10;
inline constexpr size_t kStageSlotBytes = size_t{256} << 10;
inline constexpr size_t kStageSlots = 3;
inline constexpr size_t kStageBytes = kStageSlotBytes * kStageSlots;

// Who else is on this host.
struct TeamPlace {
  std::vector<int> ranks;  // ascending; the first is the leader
  size_t index = 0;        // ours in `ranks`
  bool alone = true;       // there are no other hosts
  int world_size = 1;
};

// For one thread at a time, except leave(), has_left() and adopt_abort().
class Team {
 public:
  static size_t segment_bytes(const TeamPlace& place);
  // `segment` has segment_bytes(place) bytes and outlives every process's interest in it;
  // `failure` outlives the Team.
  Team(TeamPlace place, SharedMemory segment, Failure& failure,
       std::chrono::milliseconds operation_timeout);
  ~Team();

  size_t size() const { return place_.ranks.size(); }
  size_t index() const { return place_.index; }
  bool leads() const { return place_.index == 0; }
  const std::vector<int>& ranks() const { return place_.ranks; }

  // Returns when all ranks of the team have come. What they wrote before is then visible.
  // kUnavailable: a rank has left or died; kDeadlineExceeded names the one that did not come. The
  // Error is reported to the Failure.
  Status barrier(const CallRecord& call);

  // Shared by all: write only your own, before a barrier.
  CallRecord& record(size_t index, uint64_t sequence) const;
  std::byte* small_slot(size_t index, uint64_t sequence) const;
  std::byte* stage(size_t index) const;  // kStageBytes
  std::byte* stage_slot(size_t index, size_t slot) const {
    return stage(index) + (slot % kStageSlots) * kStageSlotBytes;
  }
  // Only with several hosts.
  std::byte* result() const;
  size_t result_bytes() const;
  static size_t result_bytes_of(const TeamPlace& place);

  // From now on a peer that waits for this rank gets an Error instead.
  void leave();
  bool has_left(int rank) const;
  // Reports the Error that a peer has left in the shared memory, if any.
  void adopt_abort();

 private:
  struct Header;
  struct RankBlock;

  Header& header() const;
  RankBlock& block(size_t index) const;
  std::byte* data_of(size_t index) const;
  bool spin(uint32_t target) const;
  Status sleep_until_there(uint32_t target, const CallRecord& call);
  Status check_peers(uint32_t target, const CallRecord& call);
  Error timed_out(const CallRecord& call) const;
  int missing_rank() const;
  void publish(const Error& error);
  void wake_all();

  const TeamPlace place_;
  SharedMemory segment_;
  Failure& failure_;
  const std::chrono::milliseconds operation_timeout_;
  uint32_t barrier_count_ = 0;
};

// The connections of the leader to each member (by team index, the leader's own is invalid), or of
// a member to its leader (one). Kept to hand over further memory.
using TeamSockets = std::vector<UniqueFd>;

struct TeamDoor {
  int listener = -1;  // abstract unix socket; the leader's is used
  std::string leader_name;
  std::string session;
};

// Makes the segment (leader) or gets it (member).
Result<TeamSockets> connect_team(const TeamPlace& place, const TeamDoor& door,
                                 const Patience& patience);
// Collective over the team: the leader creates memory of that size and hands it to the members.
Result<SharedMemory> share_memory(const TeamPlace& place, const TeamSockets& sockets,
                                  size_t size_bytes, const Patience& patience);

}  // namespace yard::collective
