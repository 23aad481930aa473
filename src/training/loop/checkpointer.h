// Checkpointer: saves a run while it goes on, and takes it up again.
//
// Every rank copies what it holds and returns; the files are written by a thread of its own, and
// count once those of all ranks are there (checkpoint/saver.h). A save that fails is an alarm, not
// the end: the older checkpoint is still there, and the last save of a run is waited for.
#pragma once

#include <memory>
#include <optional>

#include "checkpoint/checkpoint_store.h"
#include "checkpoint/exchange.h"
#include "checkpoint/saver.h"
#include "loop/heartbeat_writer.h"
#include "loop/networks.h"
#include "loop/run_state.h"
#include "loop/trainee.h"

namespace yard::loop {

struct LoadedCheckpoint {
  RunState state;
  checkpoint::CheckpointManifest manifest;
  std::string path;  // folder in the file system
};

// Not thread-safe. What says "collective" is called by every rank.
class Checkpointer {
 public:
  // `output_dir` is the root of `store`; everything given must outlive it. Collective.
  // kUnavailable: a rank died.
  static Result<std::unique_ptr<Checkpointer>> create(storage::ObjectStore& store,
                                                      std::string output_dir, const Recipe& recipe,
                                                      collective::Group& group,
                                                      HeartbeatWriter& heartbeat);
  // Waits for a save that runs; ranks that are still in it are told that this one is gone.
  ~Checkpointer();

  // The newest checkpoint all of whose bytes are as they were saved, on every rank. nullopt: there
  // is none. Collective. kInvalidArgument: of another format, or made by another recipe.
  Result<std::optional<LoadedCheckpoint>> find();
  // Of what find() found, the parameters that are not `trained`. kNotFound, kInvalidArgument name
  // the first tensor that differs.
  Status load(const LoadedCheckpoint& checkpoint, Networks& networks,
              const std::vector<models::NamedTensor>& trained) const;
  // What this rank holds of those that are: weights, optimiser and moving average. Before the
  // optimiser's first step the weights alone. Collective.
  Status restore(Trainee& trainee, const LoadedCheckpoint& checkpoint) const;

  // Begins to save; waits first for a save that still runs. `trainee` null: weights alone.
  // Collective.
  Status save(const Networks& networks, const Trainee* trainee, const RunState& state);
  // Tells the outcome of a save that has ended since.
  void poll();
  // Waits for the save that runs, if any: the outcome of the newest save.
  Status wait();

 private:
  struct Pending {
    int64_t global_step = 0;
    double blocked_s = 0;
    Status begun = Ok{};
  };

  Checkpointer(storage::ObjectStore& store, std::string output_dir, const Recipe& recipe,
               collective::Group& group, HeartbeatWriter& heartbeat);
  Status connect();
  Result<std::optional<int64_t>> newest() const;
  void settle();
  void tell_saved(const Pending& saved);

  const checkpoint::CheckpointStore checkpoints_;
  const std::string output_dir_;
  const Recipe& recipe_;
  collective::Group& group_;
  HeartbeatWriter& heartbeat_;
  // Saves go on beside the training, so their ranks have a group of their own.
  std::unique_ptr<collective::Group> saving_group_;
  std::unique_ptr<checkpoint::Exchange> exchange_;
  std::unique_ptr<checkpoint::Saver> saver_;
  std::optional<Pending> pending_;
  Status last_ = Ok{};
};

}  // namespace yard::loop
