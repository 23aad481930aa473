// One optimiser step of a stage: micro-batches, gradients, weights.
#pragma once

#include "loop/run_context_internal.h"
#include "loop/trainee.h"

namespace yard::loop {

struct StepReport {
  double loss = 0;  // mean over the global batch
  double learning_rate = 0;
  double gradient_norm = 0;
  bool stop = false;  // a rank was asked to stop
  double step_s = 0, compute_s = 0, data_wait_s = 0, comm_wait_s = 0;
};

// Not thread-safe. Everything given must outlive it.
class StageStepper {
 public:
  StageStepper(RunContext& context, const StageRecipe& stage, Trainee& trainee, StepSource& source);

  // `stage_step` and `global_step` are 0-based. Collective. kInvalidArgument when the loss or the
  // gradient is not finite: the weights are those before the step.
  Result<StepReport> step(int64_t stage_step, int64_t global_step, const StopToken& stop);

 private:
  Result<double> accumulate(const StepData& data, int64_t global_step);
  at::Tensor micro_loss(const StepData& data, int64_t begin, int64_t count, int64_t global_step);
  at::Tensor context_of(const StepData& data, int64_t begin, int64_t count, int64_t global_step);
  Error not_finite(const StepData& data, double own_loss, int64_t global_step) const;

  RunContext& context_;
  const StageRecipe& stage_;
  Trainee& trainee_;
  StepSource& source_;
  at::Tensor empty_tokens_;  // [1, L]; undefined without a text encoder
};

}  // namespace yard::loop
