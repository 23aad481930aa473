#include "loop/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace yard::loop {

double learning_rate_at(const StageRecipe& stage, int64_t step) {
  if (step < stage.warmup_steps)
    return stage.learning_rate * static_cast<double>(step) /
           static_cast<double>(stage.warmup_steps);
  const auto left_count = static_cast<double>(std::max<int64_t>(0, stage.steps - step));
  const auto length = static_cast<double>(std::max<int64_t>(1, stage.steps - stage.warmup_steps));
  switch (stage.schedule) {
    case LearningRateShape::kConstant:
      return stage.learning_rate;
    case LearningRateShape::kLinear:
      return stage.learning_rate * left_count / length;
    case LearningRateShape::kCosine:
      return stage.learning_rate * 0.5 *
             (1 + std::cos(std::numbers::pi * (1 - left_count / length)));
  }
  YARD_UNREACHABLE();
}

}  // namespace yard::loop
