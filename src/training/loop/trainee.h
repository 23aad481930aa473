// Trainee: the parameters that a stage trains, with their optimiser and moving average.
//
// Everything is flat: one call of fused AdamW (Loshchilov and Hutter 2019) updates all parameters,
// one norm clips all gradients, one lerp moves the average.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "base/result.h"
#include "collective/collective.h"
#include "loop/recipe.h"
#include "models/module.h"
#include "parallel/data_parallel.h"

namespace yard::loop {

// What a checkpoint holds besides the weights.
struct TraineeTensors {
  std::vector<models::NamedTensor> optimizer;  // "exp_avg.NAME", "exp_avg_sq.NAME"
  std::vector<models::NamedTensor> ema;        // "NAME"; empty without a moving average
};

// Not thread-safe. `group` must outlive it.
class Trainee {
 public:
  // `parameters`: f32 leaves that require grad, in order of use. Collective.
  static Result<std::unique_ptr<Trainee>> create(std::vector<models::NamedTensor> parameters,
                                                 collective::Group& group,
                                                 const OptimizerRecipe& optimizer,
                                                 const EmaRecipe& ema);

  parallel::DataParallel& gradients() { return *data_parallel_; }
  // Updates the weights with the reduced gradients; returns their norm before clipping. Weights
  // stay as they are when it is not finite.
  double step(double learning_rate);
  int64_t step_count() const { return step_count_; }

  // While it lives, the weights are the moving average.
  class AveragedWeights {
   public:
    explicit AveragedWeights(Trainee& trainee);
    ~AveragedWeights();
    AveragedWeights(const AveragedWeights&) = delete;
    AveragedWeights& operator=(const AveragedWeights&) = delete;

   private:
    Trainee& trainee_;
    at::Tensor trained_;
  };
  // The weights become the moving average, for good.
  void keep_average();

  // Copies of the state by name, which later steps leave as they are.
  TraineeTensors snapshot() const;
  // A copy of the weights by name.
  std::vector<models::NamedTensor> weights_snapshot() const;
  // Takes up a state as snapshot() gave it. kInvalidArgument names the first tensor that differs.
  Status restore(const std::vector<models::NamedTensor>& optimizer,
                 const std::vector<models::NamedTensor>& ema, int64_t step_count,
                 const std::string& what);
  // The average starts from the weights as they are now.
  void reset_average();

 private:
  Trainee(std::vector<models::NamedTensor> parameters, OptimizerRecipe optimizer, EmaRecipe ema)
      : parameters_(std::move(parameters)), optimizer_(optimizer), ema_recipe_(ema) {}
  std::vector<models::NamedTensor> named(const std::string& prefix, const at::Tensor& flat) const;
  void move_average();

  const std::vector<models::NamedTensor> parameters_;
  const OptimizerRecipe optimizer_;
  const EmaRecipe ema_recipe_;
  std::unique_ptr<parallel::DataParallel> data_parallel_;
  at::Tensor exp_avg_, exp_avg_sq_, ema_;  // flat; ema_ undefined without a moving average
  at::Tensor fused_step_;                  // what the kernel wants: the step as an f32 tensor
  int64_t step_count_ = 0;
};

}  // namespace yard::loop
