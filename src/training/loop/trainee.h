// Trainee: the parameters that a stage trains, with their optimiser and moving average.
//
// Each rank holds of all three what recipe.parallel leaves to it; see parallel/data_parallel.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "loop/optimizer.h"
#include "loop/recipe.h"
#include "models/module.h"
#include "parallel/data_parallel.h"

namespace yard::loop {

// What a checkpoint holds of it, as far as this rank has it.
struct TraineeState {
  // "NAME", "exp_avg.NAME" and what else the optimiser keeps, "ema.NAME" with a moving average.
  std::vector<parallel::ShardedTensor> tensors;
  std::vector<OptimizerState> optimizer;  // whose memory some of them are
};

// Steps of the optimiser, and that after which the average last equalled the weights.
struct TraineeProgress {
  int64_t step_count = 0;
  int64_t average_begin = 0;
};

struct TraineeOptions {
  OptimizerRecipe optimizer;
  EmaRecipe ema;
  bool has_average = true;  // memory for one, now or in a later stage
  ParallelRecipe parallel;
  uint64_t seed = 0;  // of stochastic rounding
};

// Not thread-safe. What says "collective" is called by every rank.
class Trainee {
 public:
  // `parameters`: f32 leaves that require grad, in order of use. `groups` must outlive it. `start`,
  // asked on rank 0 alone, gives their values; null: those that they have. Collective.
  static Result<std::unique_ptr<Trainee>> create(std::vector<models::NamedTensor> parameters,
                                                 const parallel::ParallelGroups& groups,
                                                 const TraineeOptions& options,
                                                 const parallel::ParameterStart& start = nullptr);

  parallel::DataParallel& gradients() { return *data_parallel_; }
  // Updates the weights with the reduced gradients; returns their norm before clipping. Weights
  // stay as they are when it is not finite. Collective.
  Result<double> step(double learning_rate);
  int64_t step_count() const { return optimizer_->step_count(); }
  TraineeProgress progress() const { return {step_count(), average_begin_}; }
  // How the average goes on: with a decay of 0, and before its start, it equals the weights.
  void set_average(const EmaRecipe& ema) { ema_recipe_ = ema; }
  // Of what this rank holds for training: weights, gradients, optimiser state, average.
  size_t memory_bytes() const;

  // While it lives, the weights are the moving average. Made and destroyed by every rank.
  class AveragedWeights {
   public:
    explicit AveragedWeights(Trainee& trainee);
    ~AveragedWeights();
    AveragedWeights(const AveragedWeights&) = delete;
    AveragedWeights& operator=(const AveragedWeights&) = delete;
    // An Error: the group is dead.
    const Status& status() const { return status_; }

   private:
    Trainee& trainee_;
    std::vector<at::Tensor> trained_;
    Status status_ = Ok{};
  };
  // The weights become the moving average, for good. Collective.
  Status keep_average();
  // The weights become ordinary tensors, whole on every rank: nothing is trained from here on.
  // Collective.
  Status release() { return data_parallel_->release(); }

  // The weights as they are, by name, in a file without a name in `folder`, so that this rank does
  // not hold the model in memory; empty where not `wanted`. Collective. kExhausted: the disk is
  // full; kUnavailable: a rank died.
  Result<std::vector<models::NamedTensor>> weights_on_disk(const std::string& folder,
                                                           bool wanted) const;
  // The moving average likewise; empty without one. Collective.
  Result<std::vector<models::NamedTensor>> average(bool wanted) const {
    if (!ema_.defined()) return std::vector<models::NamedTensor>();
    return data_parallel_->gather("", ema_, wanted);
  }
  // The state itself, or copies of what the optimiser packs. Valid until the next step.
  Result<TraineeState> state() const;
  std::vector<parallel::ShardedTensor> sharded_weights() const {
    return data_parallel_->sharded_parameters("");
  }
  // The tensors of state(), as it was given, now say what they said at that progress. Collective.
  Status restored(const TraineeState& state, const TraineeProgress& progress);
  // Those of sharded_weights() say how training starts: the average too. Collective.
  Status weights_restored();
  // Names of the trained parameters.
  const std::vector<models::NamedTensor>& parameters() const { return parameters_; }

 private:
  Trainee(std::vector<models::NamedTensor> parameters, const EmaRecipe& ema)
      : parameters_(std::move(parameters)), ema_recipe_(ema) {}
  Status set_weights(const std::vector<at::Tensor>& values);
  void begin_average();
  void move_average();

  const std::vector<models::NamedTensor> parameters_;
  EmaRecipe ema_recipe_;
  int64_t average_begin_ = 0;
  std::unique_ptr<parallel::DataParallel> data_parallel_;
  std::unique_ptr<Optimizer> optimizer_;
  at::Tensor ema_;  // of this rank's parameters; undefined without a moving average
  std::vector<at::Tensor> ema_cuts_;
};

}  // namespace yard::loop
