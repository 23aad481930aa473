// The learning rate of each optimiser step, as diffusers' get_scheduler gives it. Pure.
#pragma once

#include <cstdint>

#include "loop/recipe.h"

namespace yard::loop {

// `step` is 0-based within the stage.
double learning_rate_at(const StageRecipe& stage, int64_t step);

}  // namespace yard::loop
