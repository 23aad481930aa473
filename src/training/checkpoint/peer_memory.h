// PeerMemory: the first tier of checkpoints. Each rank's state is also kept in memory, by itself
// and by a partner on another host, so that a rank that was replaced has it back in the time that
// the network takes, and the others at once.
//
//   PeerMemory memory(host_identity);                              // outlives groups and savers
//   Saver saver(checkpoints, exchange, {.memory = {&memory, &group}});
//   ...                                                            // a rank dies; a new group
//   forms YARD_ASSIGN(auto copy, memory.recover(new_group));             // on every rank, the new
//   one too if (copy) YARD_TRY(memory.load(targets));                      // else from the store
//
// Memory: twice this rank's state and twice that of those whose partner it is: while one copy is
// made, the one before must stay whole.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "checkpoint/load.h"
#include "checkpoint/save_plan.h"
#include "checkpoint/staging.h"
#include "collective/collective.h"

namespace yard::checkpoint {

// partners[r]: the rank that keeps the copy of rank r; r itself where there is no other rank. It is
// on the next host, in the order in which hosts first appear, at the same place among its ranks, as
// far as it has so many; on one host it is the next rank. Pure.
std::vector<int> partner_ranks(const std::vector<std::string>& hosts);

// What is known of a copy; its bytes are those of the layout's chunks, one after the other.
struct CopyInfo {
  std::string id;  // of the save
  int64_t step = 0;
  Layout layout;
  SaveNotes notes;
};

// Not thread-safe: a saver uses it until its wait() has returned.
class PeerMemory {
 public:
  // `host`: ranks with the same do not protect each other from the loss of a host. Empty: the
  // name of this machine.
  explicit PeerMemory(std::string host = {});

  // Collective, on every rank of a new group. The newest step of which every rank's copy is still
  // there: each rank has its own in memory then. nullopt: there is none, or it is of another number
  // of ranks. kUnavailable: a rank died meanwhile; kCorrupt, naming both ranks: a copy is damaged.
  Result<std::optional<CopyInfo>> recover(collective::Group& group);

  // What recover() found, into memory: chunks as they were saved, or parts of them. Errors as
  // load() of load.h; kNotFound also where recover() found nothing.
  Status load(std::span<const TensorTarget> targets) const;

  // For Saver. Where the next copy of this rank is to be made, then: keep it, here and at the
  // partner. Collective; an Error that is no group's failure is the same on all ranks.
  Status reserve(int rank, uint64_t size_bytes);  // memory for both copies of this rank
  StagingBuffer& next_buffer(int rank);
  Status keep(collective::Group& group, CopyInfo info);

 private:
  struct Slot {
    StagingBuffer buffer;
    CopyInfo info;
    uint64_t size_bytes = 0;
    std::string header;  // what a peer is told of it
    bool is_whole = false;
  };
  using Slots = std::array<Slot, 2>;  // of one rank: one is whole while the other is written
  // A copy on its way.
  struct Move {
    int owner = 0;  // the rank whose state it is
    int from = 0;
    int to = 0;
    std::string id;
    uint64_t header_bytes = 0;
    uint64_t size_bytes = 0;
  };

  Slot& next_slot(int owner);
  Slot* find(int owner, std::string_view id);
  void seal(Slot& slot, CopyInfo info, int world_size) const;
  Status open(Slot& slot, const Move& move) const;
  Json offers() const;
  static Result<std::vector<Move>> plan_recovery(const std::vector<Json>& offers, std::string& id);
  // Collective.
  Status transfer(collective::Group& group, const std::vector<Move>& moves);
  Status carry_out(collective::Group& group, const std::vector<Move>& moves);

  const std::string host_;
  std::map<int, Slots> slots_;  // by the rank whose state it is
  std::string agreed_id_;       // the newest that every rank has whole
  int rank_ = 0;                // of the group of the last call
};

}  // namespace yard::checkpoint
