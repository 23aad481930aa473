// The training run of one rank: from a recipe to checkpoints, sample pictures and a saved model.
//
// Names no libtorch type. All ranks of `group` call train() with equal recipes.
#pragma once

#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "base/stop_token.h"
#include "collective/collective.h"
#include "loop/heartbeat_writer.h"
#include "loop/recipe.h"

namespace yard::loop {

struct TrainerOptions {
  std::string output_dir;  // made if needed; of all ranks the same folder
  std::string job_dir;     // paths in heartbeats are relative to it; empty: as they are
  int thread_count = 1;    // intra-op threads of this rank
  // Memory that this rank may take yet, for micro-batches that are probed; 0: not known, no limit.
  uint64_t memory_bytes = 0;
  // Steps that are traced into output_dir/profile, after the first few of this start; 0: none.
  int64_t profiled_steps = 0;
  // Stages from this number on (from 0) are left to another run, which takes this one's last
  // checkpoint up; -1: none are.
  int64_t stop_at_stage = -1;
};

// Takes the run up from the newest checkpoint in output_dir, trains the stages that are left, saves
// the model; with stop_at_stage only the last checkpoint. Once `stop` is asked on any rank, all end
// the running step, save and return kCancelled. kInvalidArgument: the recipe does not fit its data,
// models or rank count, the checkpoint is of another recipe, or the loss is no number, or too high,
// more often than recipe.guard allows (step and samples are named, and stand in
// output_dir/not_finite). kExhausted: the last checkpoint or the model could not be written, or not
// even one sample fits into memory. kUnavailable: a rank was lost (named) or ran out of memory;
// started again the run goes on, with half the micro-batch.
Status train(Recipe recipe, const TrainerOptions& options, collective::Group& group,
             HeartbeatWriter& heartbeat, const StopToken& stop);

}  // namespace yard::loop
