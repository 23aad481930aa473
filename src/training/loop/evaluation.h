// Looking at a model on the way: its loss on held-out samples, its pictures for fixed prompts.
#pragma once

#include <vector>

#include "loop/run_context_internal.h"
#include "loop/run_state.h"

namespace yard::loop {

struct HeldOutReport {
  double loss = 0;
  // Of each of recipe.evaluation.buckets equal parts of the timesteps, from the cleanest on. Empty
  // for an autoencoder; not a number where no sample fell into it.
  std::vector<double> bucket_losses;
};

// The held-out samples of one stage; loaded at the first look. Not thread-safe; everything given
// must outlive it.
class HeldOutLoss {
 public:
  HeldOutLoss(RunContext& context, const StageRecipe& stage);

  bool enabled() const { return context_.samples && context_.recipe.evaluation.samples > 0; }
  // The mean loss of the weights as they are, with noise and timesteps that never change: samples
  // take the parts of the timesteps in turn, and each sample as many as recipe.evaluation.looks.
  // The same samples and draws on any number of ranks. Collective.
  Result<HeldOutReport> measure();

 private:
  Status load();
  // Sums of losses by bucket, then their counts.
  std::vector<double> sums() const;
  at::Tensor losses(int64_t begin, int64_t count, int64_t look) const;

  RunContext& context_;
  const StageRecipe& stage_;
  const int64_t bucket_count_;
  StepData share_;             // this rank's
  int64_t first_ = 0;          // number of its first sample
  int64_t own_count_ = 0;      // of its samples
  int64_t longest_share_ = 0;  // of any rank
  bool loaded_ = false;
};

// One picture per prompt, side by side, as a PNG file in output_dir/samples, of the weights as they
// are. Each rank makes its share. Collective. A picture that cannot be written is told in the log.
Status write_sample_grid(RunContext& context, const StageRecipe& stage, int64_t global_step);

}  // namespace yard::loop
