#include "loop/diffusion.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "models/sampling_plan.h"

namespace yard::loop {
namespace {

models::PredictionType type_of(Prediction prediction) {
  switch (prediction) {
    case Prediction::kEpsilon:
      return models::PredictionType::kEpsilon;
    case Prediction::kVelocity:
      return models::PredictionType::kVelocity;
    case Prediction::kSample:
      return models::PredictionType::kSample;
    case Prediction::kFlow:
      return models::PredictionType::kFlow;
  }
  YARD_UNREACHABLE();
}

models::BetaCurve curve_of(BetaSchedule schedule) {
  switch (schedule) {
    case BetaSchedule::kLinear:
      return models::BetaCurve::kLinear;
    case BetaSchedule::kScaledLinear:
      return models::BetaCurve::kScaledLinear;
    case BetaSchedule::kSquaredCosCap:
      return models::BetaCurve::kSquaredCosCap;
  }
  YARD_UNREACHABLE();
}

// In alpha = SNR / (1 + SNR), which is finite at both ends: 0 at an SNR of 0, 1 without noise.
double weight_at(const DiffusionRecipe& recipe, double alpha) {
  if (recipe.p2_gamma > 0)
    return std::pow((1 - alpha) / (recipe.p2_k * (1 - alpha) + alpha), recipe.p2_gamma);
  const double gamma = recipe.min_snr_gamma;
  if (gamma <= 0) return 1;
  switch (recipe.prediction) {
    case Prediction::kEpsilon:  // min(SNR, gamma) / SNR
      return alpha <= gamma * (1 - alpha) ? 1 : gamma * (1 - alpha) / alpha;
    case Prediction::kVelocity:  // min(SNR, gamma) / (SNR + 1)
      return std::min(alpha, gamma * (1 - alpha));
    case Prediction::kSample:  // min(SNR, gamma)
      return alpha >= gamma * (1 - alpha) ? gamma : alpha / (1 - alpha);
    case Prediction::kFlow:
      return 1;
  }
  YARD_UNREACHABLE();
}

}  // namespace

models::SchedulerConfig scheduler_of(const DiffusionRecipe& recipe) {
  models::SchedulerConfig c;
  c.num_train_timesteps = recipe.train_timesteps;
  c.prediction_type = type_of(recipe.prediction);
  if (recipe.prediction == Prediction::kFlow) {
    c.kind = models::SchedulerKind::kDpmSolverMultistep;
    c.solver_order = 1;
    c.use_flow_sigmas = true;
    c.flow_shift = recipe.flow_shift;
    c.timestep_spacing = models::TimestepSpacing::kLinspace;
    return c;
  }
  c.kind = models::SchedulerKind::kDdim;
  c.beta_schedule = curve_of(recipe.beta_schedule);
  c.beta_start = recipe.beta_start;
  c.beta_end = recipe.beta_end;
  c.clip_sample = c.set_alpha_to_one = false;
  c.rescale_betas_zero_snr = recipe.zero_terminal_snr;
  c.steps_offset = 1;
  if (recipe.zero_terminal_snr) c.timestep_spacing = models::TimestepSpacing::kTrailing;
  return c;
}

DiffusionSchedule::DiffusionSchedule(const DiffusionRecipe& recipe)
    : recipe_(recipe), training_noise_(scheduler_of(recipe)) {
  recipe.prediction == Prediction::kFlow ? make_flow() : make_variance_preserving();
}

void DiffusionSchedule::make_variance_preserving() {
  int64_t timestep = 0;
  for (const float share : models::alphas_cumprod(scheduler_of(recipe_))) {
    const double alpha = share;
    levels_.push_back({.signal = std::sqrt(alpha),
                       .noise = std::sqrt(1 - alpha),
                       .condition = static_cast<double>(timestep++),
                       .weight = weight_at(recipe_, alpha)});
  }
}

void DiffusionSchedule::make_flow() {
  const auto count = static_cast<double>(recipe_.train_timesteps);
  for (const double sigma : models::flow_sigmas(scheduler_of(recipe_)))
    levels_.push_back({.signal = 1 - sigma, .noise = sigma, .condition = sigma * count});
}

int64_t DiffusionSchedule::draw_timestep(const tensor::Draw& draw) const {
  if (recipe_.timestep_sampling == TimestepSampling::kUniform)
    return tensor::draw_below(draw, timestep_count());
  std::array<float, 1> normal;
  tensor::fill_normal(draw, normal);
  const double logit = recipe_.logit_mean + recipe_.logit_std * static_cast<double>(normal[0]);
  const double u = 1 / (1 + std::exp(-logit));
  return std::min(static_cast<int64_t>(u * static_cast<double>(timestep_count())),
                  timestep_count() - 1);
}

int64_t DiffusionSchedule::draw_timestep_in(const tensor::Draw& draw, int64_t bucket,
                                            int64_t bucket_count) const {
  YARD_CHECK(bucket >= 0 && bucket < bucket_count && bucket_count <= timestep_count());
  const int64_t begin = timestep_count() * bucket / bucket_count;
  const int64_t end = timestep_count() * (bucket + 1) / bucket_count;
  return begin + tensor::draw_below(draw, end - begin);
}

}  // namespace yard::loop
