// Saver: makes checkpoints of a run while it goes on.
//
//   Saver saver(checkpoints, exchange, {.retention = {.keep_last = 3}});
//   YARD_TRY(saver.save(step, tensors, {{"epoch", 2}}));   // returns once the state is copied
//   ...                                                    // train on, change the tensors
//   YARD_TRY(saver.wait());                                // at the end
//
// save() copies what is there at the call; a thread writes the copy. Every rank writes the chunks
// that it has, of chunks that several have one of them writes; the manifest is put by rank 0 once
// all files of all ranks are there and verified. Until then, and whoever dies when, the checkpoints
// before are as they were and this one is not there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/json.h"
#include "base/result.h"
#include "checkpoint/checkpoint_store.h"
#include "checkpoint/exchange.h"
#include "checkpoint/peer_memory.h"
#include "checkpoint/save_plan.h"
#include "telemetry/counters.h"

namespace yard::checkpoint {

// A chunk that this rank has: the elements of `region`, dense, in their order.
struct TensorView {
  std::string name;
  TensorInfo info;  // of the whole tensor
  Region region;
  std::span<const std::byte> bytes;
};

enum class WhenBusy {
  kWait,    // for the save before
  kRefuse,  // kUnavailable at once; on the ranks that did not refuse, that save fails
};

struct SaverOptions {
  WhenBusy when_busy = WhenBusy::kWait;
  RetentionRule retention;    // applied by rank 0 after each save that succeeded
  FileSizeRule files;         // how a rank's chunks are cut into files
  int writer_count = 4;       // files written at once by each rank
  int copy_thread_count = 0;  // 0: by the cores
  bool read_back = false;     // read every file again before it counts
  // The first tier: each save is also kept in the memory of this rank and of a peer. Both or
  // neither; `group` is that of the exchange, or another one that nobody else uses.
  struct {
    PeerMemory* peers = nullptr;
    collective::Group* group = nullptr;
  } memory;
  CounterRegistry* counters = nullptr;
};

// Not thread-safe. Collective: every rank makes the same calls in the same order.
class Saver {
 public:
  // The stores, the exchange and the peers' memory must outlive it.
  Saver(CheckpointStore checkpoints, Exchange& exchange, const SaverOptions& options = {});
  ~Saver();  // waits for the save that runs

  // Makes the memory that copies of so many bytes need, so that the first save is as quick as the
  // others. kExhausted: there is none.
  Status reserve(uint64_t size_bytes);

  // Begins to save. An error of the save before is told here, once, and nothing is saved then.
  // kInvalidArgument: a negative step, chunks that are none (the tensor is named), `bytes` of
  // another size; what only all ranks together can see is told at the next call: tensors that
  // differ between ranks, overlap or have holes. kUnavailable: refused. kExhausted: no memory.
  Status save(int64_t step, std::span<const TensorView> tensors, const SaveNotes& notes = {});

  // Waits for the save that runs. The error of a save is told once, with the code of what failed
  // on the first rank where something did; afterwards the checkpoint is not there, but for
  // kUnavailable and kDeadlineExceeded, where it may be.
  Status wait();
  bool is_busy() const;

  // How long the last save() blocked its caller with copying; without waiting for another save.
  double copy_seconds() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace yard::checkpoint
