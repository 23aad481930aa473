// What the ranks of a group do together, one operation after the other.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "collective/call_internal.h"
#include "collective/failure_internal.h"
#include "collective/flight_recorder_internal.h"
#include "collective/host_algorithms_internal.h"
#include "collective/point_to_point_internal.h"
#include "collective/share_plan_internal.h"
#include "collective/shared_memory_internal.h"
#include "collective/team_internal.h"

namespace yard::collective {

// Memory that all ranks of a host have mapped: one stretch for each, one after the other.
struct SharedStretches {
  SharedMemory memory;
  uint32_t id = 0;  // the same on all ranks, never 0
  size_t stride_bytes = 0;
  size_t size_bytes = 0;  // that may be used of each stretch
  std::byte* of(size_t team_index) const { return memory.data() + team_index * stride_bytes; }
};

// The live SharedBuffers of a group. Thread-safe.
class SharedRegistry {
 public:
  explicit SharedRegistry(size_t team_index) : team_index_(team_index) {}
  void add(std::shared_ptr<const SharedStretches> stretches);
  void remove(uint32_t id);
  struct Found {
    std::shared_ptr<const SharedStretches> stretches;  // null: ordinary memory
    SharedPlace place;
  };
  // Whether `bytes` lies wholly in our stretch of one of them.
  Found find(std::span<const std::byte> bytes) const;

 private:
  const size_t team_index_;
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<const SharedStretches>> live_;
};

struct Operation {
  CallRecord call;
  std::span<const std::byte> in;
  std::span<std::byte> out;
  std::shared_ptr<const SharedStretches> in_shared;
  std::shared_ptr<const SharedStretches> out_shared;
  std::shared_ptr<SharedStretches> allocated;  // the result of kAllocate
  // By rank, of the kinds that exchange(); in order, of an all_reduce of several tensors.
  std::vector<std::span<const std::byte>> ins;
  std::vector<std::span<std::byte>> outs;
  FlightEntry flight = 0;
  std::atomic<bool> done = false;
  Status status = Ok{};  // once done
};

// Where a group's ranks are, by host.
struct Topology {
  int rank = 0;
  int size = 1;
  std::vector<std::vector<int>> hosts;  // ranks of each, ascending; hosts by ascending leader
  size_t host_index = 0;                // ours
  size_t host_of(int rank) const;
  // Places that every host has: the ranks there carry data between hosts, a share each.
  size_t rail_count() const;
};

// Ranks that all share memory. For one thread at a time; the team outlives it.
//
// Every operation begins with a barrier after which each rank compares all calls. Small ones move
// their data through the team's small slots and need no other barrier. Larger ones work in place
// when every rank's buffer is in the same shared memory, else chunk by chunk through the stages,
// three chunks in flight: while one is copied in, the one before is reduced, each rank its own
// share, and the one before that is copied out.
class LocalOperations {
 public:
  LocalOperations(const Topology& topology, Team& team) : topology_(topology), team_(team) {}

  // Barrier, then kInvalidArgument when the ranks call different operations.
  Status begin(const Operation& operation);
  // After begin(): every rank's `in` lies in the same shared memory.
  bool shares_ins(const Operation& operation) const { return all_shared(operation, Side::kIn); }
  const std::byte* in_of(const Operation& operation, size_t peer) const {
    return peer_bytes(operation, Side::kIn, peer);
  }
  Status run(Operation& operation);

  // For the kinds that exchange(). Before begin(): says what this rank gives to whom.
  void announce_sizes(const Operation& operation);
  // After begin(): ins[r] of every rank of the team to outs[...] of the team's rank r.
  Status exchange(const Operation& operation);

 private:
  Status all_reduce(Operation& operation);
  Status all_reduce_small(Operation& operation);
  Status all_reduce_in_place(Operation& operation);
  Status all_reduce_staged(Operation& operation);
  Status reduce_scatter(Operation& operation);
  Status reduce_scatter_small(Operation& operation);
  Status reduce_scatter_in_place(Operation& operation);
  Status reduce_scatter_staged(Operation& operation);
  Status all_gather(Operation& operation);
  Status all_gather_staged(Operation& operation);
  Status broadcast(Operation& operation);
  Status broadcast_staged(Operation& operation);

  enum class Side { kIn, kOut };
  // Every rank's buffer on that side lies in the same shared memory, where it can be reached.
  bool all_shared(const Operation& operation, Side side) const;
  std::byte* peer_bytes(const Operation& operation, Side side, size_t peer) const;
  size_t announced_size(const Operation& operation, size_t from, size_t to) const;
  Status check_sizes(const Operation& operation) const;
  Reduction reduction_of(const CallRecord& call) const;
  Status end(const Operation& operation) { return team_.barrier(operation.call); }

  const Topology& topology_;
  Team& team_;
  // Scratch for the lists of addresses, one per peer.
  std::vector<std::byte*> dsts_;
  std::vector<const std::byte*> srcs_;
};

// Ranks on several hosts: the team of each host works through its shared memory; what crosses
// hosts is dealt to its first rail_count() ranks, each of which talks to those at its place in the
// other teams. Chunk by chunk.
class SpanningOperations {
 public:
  SpanningOperations(const Topology& topology, Team& team, HostAlgorithms* rail,
                     PointToPoint& messages, LocalOperations& local)
      : topology_(topology), team_(team), rail_(rail), messages_(messages), local_(local) {}
  Status run(Operation& operation);

 private:
  // The elements [begin, begin + count) of the reduction of all ranks' `in` come to stand in the
  // team's result area, wide and not yet divided.
  Status reduce_chunk(const Operation& operation, size_t begin, size_t count);
  // All of it in one chunk, through the small slots.
  Status reduce_small(const Operation& operation);
  // Brings [begin, begin + count) of the reduction to our `out`, as far as we want it.
  void take_result(const Operation& operation, size_t begin, size_t count);
  Status reduce(Operation& operation);
  Status all_gather(Operation& operation);
  Status broadcast(Operation& operation);
  Status exchange(Operation& operation);
  Status start(const Operation& operation);
  // Runs `step` on the ranks with a rail, between two barriers.
  template <typename Step>
  Status on_rails(const Operation& operation, Step step);
  // Our rail's part of `count` elements or bytes.
  Share rail_share(size_t count, size_t block) const;

  const Topology& topology_;
  Team& team_;
  HostAlgorithms* rail_;  // null beyond the first rail_count() ranks of a host
  PointToPoint& messages_;
  LocalOperations& local_;
};

}  // namespace yard::collective
