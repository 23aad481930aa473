#include "loop/diffusion.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace yard::loop {
namespace {

constexpr int64_t kStepsOffset = 1;

double cosine_bar(double time) {
  const double c = std::cos((time + 0.008) / 1.008 * std::numbers::pi / 2);
  return c * c;
}

double beta_at(const DiffusionRecipe& recipe, int64_t timestep) {
  const auto count = static_cast<double>(recipe.train_timesteps);
  const auto t = static_cast<double>(timestep);
  const double x = t / (count - 1);
  switch (recipe.beta_schedule) {
    case BetaSchedule::kLinear:
      return recipe.beta_start + x * (recipe.beta_end - recipe.beta_start);
    case BetaSchedule::kScaledLinear: {
      const double start = std::sqrt(recipe.beta_start);
      const double root = start + x * (std::sqrt(recipe.beta_end) - start);
      return root * root;
    }
    case BetaSchedule::kSquaredCosCap:
      return std::min(1 - cosine_bar((t + 1) / count) / cosine_bar(t / count), 0.999);
  }
  YARD_UNREACHABLE();
}

DdimStep ddim_step(int64_t timestep, double alpha, double alpha_next, Prediction prediction) {
  const double a = std::sqrt(alpha), s = std::sqrt(1 - alpha);
  const double a_next = std::sqrt(alpha_next), s_next = std::sqrt(1 - alpha_next);
  // epsilon: clean = (x - s e) / a.  v: clean = a x - s v, e = a v + s x.
  if (prediction == Prediction::kEpsilon) return {timestep, a_next / a, s_next - a_next * s / a};
  return {timestep, a_next * a + s_next * s, s_next * a - a_next * s};
}

}  // namespace

DiffusionSchedule::DiffusionSchedule(const DiffusionRecipe& recipe)
    : prediction_(recipe.prediction), min_snr_gamma_(recipe.min_snr_gamma) {
  double product = 1;
  for (int64_t t = 0; t < recipe.train_timesteps; ++t) {
    product *= 1 - beta_at(recipe, t);
    alphas_cumprod_.push_back(product);
  }
}

double DiffusionSchedule::signal(int64_t timestep) const {
  return std::sqrt(alpha_cumprod(timestep));
}

double DiffusionSchedule::noise(int64_t timestep) const {
  return std::sqrt(1 - alpha_cumprod(timestep));
}

double DiffusionSchedule::loss_weight(int64_t timestep) const {
  if (min_snr_gamma_ <= 0) return 1;
  const double snr = alpha_cumprod(timestep) / (1 - alpha_cumprod(timestep));
  const double clipped = std::min(snr, min_snr_gamma_);
  return prediction_ == Prediction::kEpsilon ? clipped / snr : clipped / (snr + 1);
}

std::vector<DdimStep> plan_ddim(const DiffusionSchedule& schedule, Prediction prediction,
                                int64_t step_count) {
  const int64_t stride = schedule.timestep_count() / step_count;
  std::vector<DdimStep> steps;
  for (int64_t i = step_count - 1; i >= 0; --i) {
    const int64_t timestep = std::min(i * stride + kStepsOffset, schedule.timestep_count() - 1);
    const int64_t next = timestep - stride;
    steps.push_back(ddim_step(timestep, schedule.alpha_cumprod(timestep),
                              schedule.alpha_cumprod(std::max<int64_t>(next, 0)), prediction));
  }
  return steps;
}

}  // namespace yard::loop
