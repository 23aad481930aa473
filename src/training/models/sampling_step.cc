#include "models/sampling_step.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/tensor.h>

namespace yard::models {
namespace {

// sum + factor * term, where the factor is not 0.
void add_term(at::Tensor& sum, double factor, const std::optional<at::Tensor>& term) {
  if (factor == 0) return;
  YARD_CHECK(term.has_value());
  const at::Tensor part = *term * factor;
  sum = sum.defined() ? sum + part : part;
}

}  // namespace

at::Tensor model_input(const SamplingStep& step, const at::Tensor& sample) {
  return step.input_scale == 1 ? sample : sample * step.input_scale;
}

SamplingResult take_step(const SamplingStep& step, const at::Tensor& sample,
                         const at::Tensor& output, const std::optional<at::Tensor>& previous_clean,
                         const std::optional<at::Tensor>& noise) {
  SamplingResult result;
  add_term(result.clean, step.clean_from_sample, sample);
  add_term(result.clean, step.clean_from_output, output);
  if (step.clean_limit)
    result.clean = at::clamp(result.clean, -*step.clean_limit, *step.clean_limit);
  add_term(result.next, step.next_from_sample, sample);
  add_term(result.next, step.next_from_output, output);
  add_term(result.next, step.next_from_clean, result.clean);
  add_term(result.next, step.next_from_previous_clean, previous_clean);
  add_term(result.next, step.next_from_noise, noise);
  return result;
}

TrainingNoise::TrainingNoise(const SchedulerConfig& config)
    : prediction_(config.prediction_type),
      timestep_count_(static_cast<double>(config.num_train_timesteps)) {
  if (prediction_ != PredictionType::kFlow) alphas_ = at::tensor(alphas_cumprod(config));
}

std::pair<at::Tensor, at::Tensor> TrainingNoise::levels(const at::Tensor& timesteps,
                                                        const at::Tensor& like) const {
  std::vector<int64_t> shape(static_cast<size_t>(like.dim()), 1);
  shape[0] = like.size(0);
  if (prediction_ == PredictionType::kFlow) {
    const at::Tensor sigma = (timesteps.to(at::kFloat) / timestep_count_).to(like.scalar_type());
    return {(1 - sigma).view(shape), sigma.view(shape)};
  }
  const at::Tensor alpha =
      alphas_.to(like.device()).index_select(0, timesteps).to(like.scalar_type());
  return {alpha.sqrt().view(shape), (1 - alpha).sqrt().view(shape)};
}

at::Tensor TrainingNoise::noisy(const at::Tensor& clean, const at::Tensor& noise,
                                const at::Tensor& timesteps) const {
  const auto [signal, level] = levels(timesteps, clean);
  return signal * clean + level * noise;
}

at::Tensor TrainingNoise::target(const at::Tensor& clean, const at::Tensor& noise,
                                 const at::Tensor& timesteps) const {
  switch (prediction_) {
    case PredictionType::kEpsilon:
      return noise;
    case PredictionType::kSample:
      return clean;
    case PredictionType::kFlow:
      return noise - clean;
    case PredictionType::kVelocity: {
      const auto [signal, level] = levels(timesteps, clean);
      return signal * noise - level * clean;
    }
  }
  YARD_UNREACHABLE();
}

}  // namespace yard::models
