#include "loop/diffusion.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <span>

namespace yard::loop {
namespace {

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

// sqrt(alpha_cumprod) of every timestep.
std::vector<double> signals_of(const DiffusionRecipe& recipe) {
  std::vector<double> out;
  double product = 1;
  for (int64_t t = 0; t < recipe.train_timesteps; ++t) {
    product *= 1 - beta_at(recipe, t);
    out.push_back(std::sqrt(product));
  }
  if (!recipe.zero_terminal_snr) return out;
  // The last becomes 0, the first stays (Lin et al. 2024, algorithm 1).
  const double first = out.front(), last = out.back();
  for (double& signal : out) signal = (signal - last) * first / (first - last);
  return out;
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

double shifted(double sigma, double shift) {
  return shift * sigma / (1 + (shift - 1) * sigma);
}

}  // namespace

DiffusionSchedule::DiffusionSchedule(const DiffusionRecipe& recipe) : recipe_(recipe) {
  recipe.prediction == Prediction::kFlow ? make_flow() : make_variance_preserving();
}

void DiffusionSchedule::make_variance_preserving() {
  int64_t timestep = 0;
  for (const double signal : signals_of(recipe_)) {
    const double alpha = signal * signal, noise = std::sqrt(1 - alpha);
    NoiseLevel level{.signal = signal,
                     .noise = noise,
                     .condition = static_cast<double>(timestep++),
                     .weight = weight_at(recipe_, alpha)};
    if (recipe_.prediction != Prediction::kSample)
      level.target_gauss = recipe_.prediction == Prediction::kVelocity ? signal : 1;
    if (recipe_.prediction != Prediction::kEpsilon)
      level.target_clean = recipe_.prediction == Prediction::kVelocity ? -noise : 1;
    levels_.push_back(level);
  }
}

void DiffusionSchedule::make_flow() {
  const auto count = static_cast<double>(recipe_.train_timesteps);
  for (int64_t t = 0; t < recipe_.train_timesteps; ++t) {
    const double sigma = shifted(static_cast<double>(t + 1) / count, recipe_.flow_shift);
    levels_.push_back({.signal = 1 - sigma,
                       .noise = sigma,
                       .target_clean = -1,
                       .target_gauss = 1,
                       .condition = sigma * count});
  }
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
