#include <algorithm>
#include <cmath>

#include "models/sampling_internal.h"

namespace yard::models {
namespace {

std::vector<int64_t> timesteps_of(const SchedulerConfig& c, int64_t count) {
  const auto total = static_cast<double>(c.num_train_timesteps);
  std::vector<int64_t> out;
  switch (c.timestep_spacing) {
    case TimestepSpacing::kLinspace:
      for (const double t : linspace(0, total - 1, count))
        out.push_back(static_cast<int64_t>(round_half_even(t)));
      std::ranges::reverse(out);
      break;
    case TimestepSpacing::kLeading: {
      const int64_t stride = c.num_train_timesteps / count;
      for (int64_t i = count - 1; i >= 0; --i) out.push_back(i * stride + c.steps_offset);
      break;
    }
    case TimestepSpacing::kTrailing:
      for (const double t : arange_down(total, total / static_cast<double>(count), count))
        out.push_back(static_cast<int64_t>(round_half_even(t)) - 1);
      break;
  }
  return out;
}

// What the model's output says of the clean picture and of the noise.
struct Reading {
  float clean_from_sample, clean_from_output, noise_from_sample, noise_from_output;
};

Reading read_output(PredictionType prediction, float alpha) {
  const float signal = std::sqrt(alpha), noise = std::sqrt(1 - alpha);
  switch (prediction) {
    case PredictionType::kEpsilon:
      return {1 / signal, -noise / signal, 0, 1};
    case PredictionType::kSample:
      return {0, 1, 1 / noise, -signal / noise};
    case PredictionType::kVelocity:
    case PredictionType::kFlow:
      return {signal, -noise, noise, signal};
  }
  YARD_UNREACHABLE();
}

SamplingStep start_step(const SchedulerConfig& c, int64_t timestep, const Reading& reading) {
  SamplingStep step{.timestep = static_cast<double>(timestep),
                    .clean_from_sample = reading.clean_from_sample,
                    .clean_from_output = reading.clean_from_output};
  if (c.clip_sample) step.clean_limit = c.clip_sample_range;
  return step;
}

float ddpm_deviation(VarianceType type, float variance, float beta) {
  switch (type) {
    case VarianceType::kFixedSmall:
      return std::sqrt(std::max(variance, 1e-20F));
    case VarianceType::kFixedSmallLog:
      return std::exp(0.5F * std::log(std::max(variance, 1e-20F)));
    case VarianceType::kFixedLarge:
      return std::sqrt(beta);
  }
  YARD_UNREACHABLE();
}

// Ho et al. 2020, equations 6 and 7, between any two timesteps.
SamplingStep ddpm_step(const SchedulerConfig& c, int64_t timestep, float alpha, float alpha_next) {
  SamplingStep step = start_step(c, timestep, read_output(c.prediction_type, alpha));
  const float noise = 1 - alpha, noise_next = 1 - alpha_next;
  const float ratio = alpha / alpha_next, beta = 1 - ratio;
  step.next_from_clean = std::sqrt(alpha_next) * beta / noise;
  step.next_from_sample = std::sqrt(ratio) * noise_next / noise;
  if (timestep > 0)
    step.next_from_noise = ddpm_deviation(c.variance_type, noise_next / noise * beta, beta);
  return step;
}

// Song et al. 2021, equation 12. The noise is what the output says, not what clipping leaves.
SamplingStep ddim_step(const SchedulerConfig& c, int64_t timestep, float alpha, float alpha_next,
                       double eta) {
  const Reading reading = read_output(c.prediction_type, alpha);
  SamplingStep step = start_step(c, timestep, reading);
  const float variance = (1 - alpha_next) / (1 - alpha) * (1 - alpha / alpha_next);
  const float deviation = static_cast<float>(eta) * std::sqrt(variance);
  const float direction = std::sqrt(std::max(1 - alpha_next - deviation * deviation, 0.0F));
  step.next_from_clean = std::sqrt(alpha_next);
  step.next_from_sample = direction * reading.noise_from_sample;
  step.next_from_output = direction * reading.noise_from_output;
  step.next_from_noise = deviation;
  return step;
}

}  // namespace

Result<SamplingPlan> plan_ancestral(const SchedulerConfig& config, const SamplingOptions& options) {
  const std::vector<float> alphas = alphas_cumprod(config);
  const auto alpha_at = [&](int64_t t) { return alphas[static_cast<size_t>(t)]; };
  const std::vector<int64_t> timesteps = timesteps_of(config, options.step_count);
  if (timesteps.front() >= config.num_train_timesteps)
    return Error{Code::kInvalidArgument, "'steps_offset' leads beyond the last training timestep"};
  if (alpha_at(timesteps.front()) == 0 && config.prediction_type == PredictionType::kEpsilon)
    return Error{Code::kInvalidArgument,
                 "a model that predicts noise cannot start where there is nothing but noise: "
                 "'rescale_betas_zero_snr' wants another 'prediction_type'"};
  const int64_t stride = config.num_train_timesteps / options.step_count;
  const bool is_ddpm = config.kind == SchedulerKind::kDdpm;
  SamplingPlan plan;
  for (size_t i = 0; i < timesteps.size(); ++i) {
    const int64_t t = timesteps[i];
    if (is_ddpm) {
      const bool last = i + 1 == timesteps.size();
      plan.steps.push_back(
          ddpm_step(config, t, alpha_at(t), last ? 1.0F : alpha_at(timesteps[i + 1])));
      continue;
    }
    const float end = config.set_alpha_to_one ? 1.0F : alphas[0];
    const float next = t >= stride ? alpha_at(t - stride) : end;
    plan.steps.push_back(ddim_step(config, t, alpha_at(t), next, options.eta));
  }
  return plan;
}

}  // namespace yard::models
