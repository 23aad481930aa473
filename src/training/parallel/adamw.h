// AdamW (Loshchilov and Hutter 2019) over the parameters that this rank holds, with clipping by the
// norm of all ranks' gradients.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "parallel/data_parallel.h"

namespace yard::parallel {

struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.01;
  double clip = 0;  // largest norm of the gradients; 0: never clipped
  // Where moments lie and steps are computed, with a copy of the parameters if that is elsewhere
  // than they are: CPU memory for a model on an accelerator. nullopt: where the parameters are.
  std::optional<at::Device> state_device;
};

// Not thread-safe. `parallel` must outlive it.
class AdamW {
 public:
  static Result<std::unique_ptr<AdamW>> create(DataParallel& parallel, const AdamWOptions& options);

  // Updates the parameters with the finished gradients and publishes them; returns the gradients'
  // norm before clipping, the same on every rank. Nothing changes when it is not finite.
  // Collective.
  Result<double> step(double learning_rate);
  int64_t step_count() const { return step_count_; }

  // Laid out as DataParallel::make_local().
  const at::Tensor& exp_avg() const { return exp_avg_; }
  const at::Tensor& exp_avg_sq() const { return exp_avg_sq_; }
  // Everything that a checkpoint holds of parameters and optimiser, and what this rank has of it:
  // "NAME", "exp_avg.NAME", "exp_avg_sq.NAME". Whoever writes to the pieces calls restored().
  std::vector<ShardedTensor> sharded_tensors() const;
  // The pieces of sharded_tensors() now say what they said after so many steps. Collective.
  Status restored(int64_t step_count);

 private:
  AdamW(DataParallel& parallel, const AdamWOptions& options)
      : parallel_(parallel), options_(options) {}
  void allocate();
  void update(double learning_rate, double norm);

  DataParallel& parallel_;
  const AdamWOptions options_;
  at::Tensor exp_avg_, exp_avg_sq_;
  std::vector<at::Tensor> exp_avg_cuts_, exp_avg_sq_cuts_;
  std::vector<at::Tensor>
      parameters_;  // on the state's device; the local ones where that is theirs
  std::vector<at::Tensor> fused_steps_;  // what the kernel wants: the step as f32, for each tensor
  int64_t step_count_ = 0;
};

}  // namespace yard::parallel
