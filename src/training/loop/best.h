// The best model of a stage by what was seen of it, kept as a model folder.
#pragma once

#include "loop/run_context_internal.h"
#include "loop/run_state.h"
#include "loop/trainee.h"

namespace yard::loop {

// Saves the weights as they are to output_dir/best/STAGE/step-N, makes best.json of that folder
// name it with the look's `numbers`, then removes the one before. A save that fails is told in the
// log: training goes on. Collective; rank 0 writes. kUnavailable: a rank died.
Status keep_best(RunContext& context, const StageRecipe& stage, const Trainee& trainee,
                 int64_t global_step, const Json& numbers);

}  // namespace yard::loop
