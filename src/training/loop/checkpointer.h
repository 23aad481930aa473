// Checkpointer: saves a run while it goes on, and takes it up again.
//
// Saving copies the state and returns; the files are written by a thread of its own. A write that
// fails is an alarm, not the end: the older checkpoint is still there, and the last write of a run
// is waited for.
#pragma once

#include <future>
#include <optional>

#include "loop/checkpoint_folder.h"
#include "loop/heartbeat_writer.h"
#include "loop/networks.h"
#include "loop/run_state.h"
#include "loop/trainee.h"

namespace yard::loop {

struct LoadedCheckpoint {
  RunState state;
  std::string path;  // folder in the file system
};

// Not thread-safe. Ranks other than 0 save nothing.
class Checkpointer {
 public:
  // `output_dir` is the root of `store`; everything given must outlive it.
  Checkpointer(storage::ObjectStore& store, std::string output_dir, const Recipe& recipe,
               collective::Group& group, HeartbeatWriter& heartbeat)
      : folder_(store),
        output_dir_(std::move(output_dir)),
        recipe_(recipe),
        group_(group),
        heartbeat_(heartbeat) {}
  ~Checkpointer();

  // The newest whole checkpoint's state, on every rank. nullopt: there is none. Collective.
  // kInvalidArgument: made by another recipe.
  Result<std::optional<LoadedCheckpoint>> find();
  // The weights of what find() found. kInvalidArgument names the first tensor that differs.
  static Status load(const LoadedCheckpoint& checkpoint, Networks& networks);
  // Optimiser and moving average of what find() found.
  Status restore(Trainee& trainee, const LoadedCheckpoint& checkpoint) const;

  // Begins to save; waits first for a save that still runs. `trainee` null: weights alone.
  // Collective: the ranks give rank 0 what they hold. kUnavailable: one of them died.
  Status save(const Networks& networks, const Trainee* trainee, const RunState& state);
  // Tells the outcome of a save that has ended since.
  void poll();
  // Waits for the save that runs, if any: the outcome of the newest save.
  Status wait();

 private:
  struct Pending {
    std::future<Status> outcome;
    int64_t global_step = 0;
    double blocked_s = 0;
  };
  void settle();

  CheckpointFolder folder_;
  const std::string output_dir_;
  const Recipe& recipe_;
  collective::Group& group_;
  HeartbeatWriter& heartbeat_;
  std::optional<Pending> pending_;
  Status last_ = Ok{};
};

}  // namespace yard::loop
