// Looking at a model on the way: its loss on held-out samples, its pictures for fixed prompts.
#pragma once

#include "loop/run_context_internal.h"
#include "loop/run_state.h"

namespace yard::loop {

// The held-out samples of one stage; loaded at the first look. Not thread-safe; everything given
// must outlive it.
class HeldOutLoss {
 public:
  HeldOutLoss(RunContext& context, const StageRecipe& stage) : context_(context), stage_(stage) {}

  bool enabled() const { return context_.samples && context_.recipe.evaluation.samples > 0; }
  // The mean loss, with noise and timesteps that never change, of the weights as they are.
  // Collective.
  Result<double> measure();

 private:
  Status load();
  double sum() const;

  RunContext& context_;
  const StageRecipe& stage_;
  StepData share_;             // this rank's
  int64_t own_count_ = 0;      // of its samples
  int64_t longest_share_ = 0;  // of any rank
  bool loaded_ = false;
};

// One picture per prompt, side by side, as a PNG file in output_dir/samples, of the weights as they
// are. Each rank makes its share. Collective. A picture that cannot be written is told in the log.
Status write_sample_grid(RunContext& context, const StageRecipe& stage, int64_t global_step);

}  // namespace yard::loop
