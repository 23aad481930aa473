#include "loop/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace yard::loop {
namespace {

// From 1 after the warm-up to 0 at the end; `left` is the share of the way that is left.
double shape_at(const StageRecipe& stage, double left) {
  switch (stage.schedule) {
    case LearningRateShape::kConstant:
      return 1;
    case LearningRateShape::kLinear:
      return left;
    case LearningRateShape::kCosine:
      return 0.5 * (1 + std::cos(std::numbers::pi * (1 - left)));
    case LearningRateShape::kPolynomial:
      return std::pow(left, stage.power);
  }
  YARD_UNREACHABLE();
}

}  // namespace

double learning_rate_at(const StageRecipe& stage, int64_t step) {
  if (step < stage.warmup_steps)
    return stage.learning_rate * static_cast<double>(step) /
           static_cast<double>(stage.warmup_steps);
  const auto left_count = static_cast<double>(std::max<int64_t>(0, stage.steps - step));
  const auto length = static_cast<double>(std::max<int64_t>(1, stage.steps - stage.warmup_steps));
  return stage.final_learning_rate +
         (stage.learning_rate - stage.final_learning_rate) * shape_at(stage, left_count / length);
}

}  // namespace yard::loop
