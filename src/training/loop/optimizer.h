// Optimizer: how gradients move the parameters that this rank holds.
//
// AdamW (Loshchilov and Hutter 2019), AdamW with its moments in 8 bits (Dettmers et al. 2022), SGD
// with momentum. A new one is one class and one line of create().
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "loop/recipe.h"
#include "parallel/data_parallel.h"

namespace yard::loop {

// One value per parameter value, f32, laid out as parallel::DataParallel::make_local().
struct OptimizerState {
  std::string prefix;  // of the parameters' names in checkpoints: "exp_avg."
  at::Tensor values;
};

// Not thread-safe. What says "collective" is called by every rank.
class Optimizer {
 public:
  // `parallel` must outlive it. `offload`: state stays in CPU memory. kExhausted: no memory.
  static Result<std::unique_ptr<Optimizer>> create(parallel::DataParallel& parallel,
                                                   const OptimizerRecipe& recipe, bool offload);
  virtual ~Optimizer() = default;

  // Updates the parameters with the finished gradients, cut to the recipe's norm, and publishes
  // them; returns the gradients' norm before the cut, the same on every rank. Nothing changes when
  // it is not finite. Collective.
  virtual Result<double> step(double learning_rate) = 0;
  virtual int64_t step_count() const = 0;

  // The state, as it is or as copies. Equal prefixes in equal order on every rank.
  virtual Result<std::vector<OptimizerState>> state() const = 0;
  // The state is what was written to that which state() gave, after so many steps. Collective.
  virtual Status restored(const std::vector<OptimizerState>& state, int64_t step_count) = 0;
  virtual size_t state_bytes() const = 0;  // on this rank
};

}  // namespace yard::loop
