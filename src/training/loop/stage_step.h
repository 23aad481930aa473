// One optimiser step of a stage: micro-batches, gradients, weights.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "loop/run_context_internal.h"
#include "loop/trainee.h"

namespace yard::loop {

// A step whose loss or gradient was no number; the weights are those before it.
struct NotFinite {
  double own_loss = 0;            // of this rank
  std::vector<std::string> keys;  // this rank's samples
  Error error;                    // what to end with
};

struct StepReport {
  double loss = 0;  // mean over the global batch
  double learning_rate = 0;
  double gradient_norm = 0;
  bool stop = false;  // a rank was asked to stop
  double step_s = 0, compute_s = 0, data_wait_s = 0, comm_wait_s = 0;
  // Of compute_s; what is left is bookkeeping.
  double forward_s = 0, backward_s = 0, optimizer_s = 0;
  std::vector<double> rank_compute_s;  // before gradients were exchanged, by rank
  std::optional<NotFinite> not_finite;
};

// Not thread-safe. Everything given must outlive it.
class StageStepper {
 public:
  // `stage.micro_batch` is lowered when memory runs out.
  StageStepper(RunContext& context, StageRecipe& stage, Trainee& trainee);

  // `stage_step` and `global_step` are 0-based. Collective. When memory runs out on any rank, all
  // compute the step again with half the micro-batch, which is noted (loop/micro_batch.h). Where
  // ranks share the parameters out the others are in the midst of gathering them: the rank that met
  // it notes the half and returns kUnavailable, and the run starts again. kExhausted: not even one
  // sample fits.
  Result<StepReport> step(StepSource& source, int64_t stage_step, int64_t global_step,
                          const StopToken& stop);
  // Computes the gradients of made-up samples, as many as one rank's `micro_batch`, and leaves the
  // weights alone. Collective. kExhausted: they do not fit into memory.
  Status rehearse(int64_t micro_batch);

 private:
  struct Accumulated {
    double loss = 0;  // mean over this rank's samples
    double forward_s = 0, backward_s = 0;
    std::optional<Error> out_of_memory;  // everything above is worthless
  };
  // What ranks tell each other once a step, summed.
  struct StepSum {
    double loss = 0;
    double not_finite = 0;
    double stop = 0;
    double out_of_memory = 0;
    std::vector<double> compute_s;  // by rank
  };
  struct Computed {
    Accumulated mine;
    StepSum sum;
    double comm_wait_s = 0;
  };
  // The gradients of the whole batch, on all ranks.
  Result<Computed> compute(const StepData& data, int64_t global_step, const StopToken& stop);
  Result<Computed> compute_once(const StepData& data, int64_t global_step, const StopToken& stop);
  Result<Accumulated> accumulate(const StepData& data, int64_t global_step);
  Status add_micro_batch(const StepData& data, int64_t begin, int64_t count, int64_t global_step,
                         Accumulated& done);
  Status note_out_of_memory(const Error& error, Accumulated& done);
  Status add_up(StepSum& sum);
  // `mine`: empty where memory ran out on another rank.
  Status halve_micro_batch(const std::optional<Error>& mine);
  StepData made_up_data(int64_t count) const;
  at::Tensor micro_loss(const StepData& data, int64_t begin, int64_t count, int64_t global_step);
  DenoiserCondition condition_of(const StepData& data, int64_t begin, int64_t count,
                                 int64_t global_step);
  bool drops_caption(uint64_t id, int64_t global_step) const;
  void drop_encoded(std::span<const uint64_t> ids, int64_t global_step,
                    DenoiserCondition& condition);
  NotFinite describe(const StepData& data, double own_loss, int64_t global_step) const;

  RunContext& context_;
  StageRecipe& stage_;
  Trainee& trainee_;
  at::Tensor empty_tokens_;            // [1, ids of a caption]; undefined without a text encoder
  DenoiserCondition empty_condition_;  // of that, once it was wanted
};

// How many of a rank's samples at once fit into every rank's memory: all of them where
// TrainerOptions::memory_bytes is not known. Collective. kExhausted: not even one does.
Result<int64_t> probe_micro_batch(const RunContext& context, const StageRecipe& stage,
                                  StageStepper& stepper);

}  // namespace yard::loop
