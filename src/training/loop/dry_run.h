// The dry run: what a recipe will take, measured on this rank without training anything.
//
// Names no libtorch type.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/stop_token.h"
#include "loop/recipe.h"
#include "loop/trainer.h"
#include "loop/weak_scaling.h"

namespace yard::loop {

struct PartSize {
  std::string name;
  int64_t parameter_count = 0;
};

struct StageCost {
  MeasuredStage measured;
  int64_t trained_parameter_count = 0;
  uint64_t state_bytes = 0;  // of this rank: weights, gradients, optimiser state, average
  uint64_t peak_bytes = 0;   // of tensors made in a micro-batch
  double step_flops = 0;     // of all ranks
  double step_s = 0;         // of this rank: its micro-batches and the optimiser
};

struct RecipeCost {
  int rank_count = 1;
  std::vector<PartSize> parts;
  std::vector<StageCost> stages;
};

// Opens data and models, then computes a few micro-batches of each stage. Writes nothing.
// Collective. Errors as train().
Result<RecipeCost> measure_recipe(Recipe recipe, const TrainerOptions& options,
                                  collective::Group& group);

// For people. `price_per_hour`: of a rank; 0: no cost is told.
std::string to_text(const RecipeCost& cost, double price_per_hour);

}  // namespace yard::loop
