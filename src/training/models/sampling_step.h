// The tensors of sampling and of diffusion training: what SamplingStep's and alphas_cumprod()'s
// numbers do to pictures. Nothing here draws noise.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "models/sampling_plan.h"

namespace yard::models {

// What the model is shown.
at::Tensor model_input(const SamplingStep& step, const at::Tensor& sample);

struct SamplingResult {
  at::Tensor next;   // the sample that the next step starts from; after the last, the picture
  at::Tensor clean;  // the picture as this step sees it; the next step's `previous_clean`
};

// All of one shape. `previous_clean` and `noise` only where the step's factors of them are not 0; a
// broken contract without.
SamplingResult take_step(const SamplingStep& step, const at::Tensor& sample,
                         const at::Tensor& output, const std::optional<at::Tensor>& previous_clean,
                         const std::optional<at::Tensor>& noise);

// Training: pictures with noise, and what the model shall say of them. Immutable.
class TrainingNoise {
 public:
  explicit TrainingNoise(const SchedulerConfig& config);

  // clean, noise [B, ...]; timesteps [B]: i64 from 0 below num_train_timesteps; for flow matching
  // any number type, sigma times num_train_timesteps.
  at::Tensor noisy(const at::Tensor& clean, const at::Tensor& noise,
                   const at::Tensor& timesteps) const;
  // By prediction_type: the noise, the velocity (Salimans & Ho 2022), the picture, or the flow
  // from the picture to the noise.
  at::Tensor target(const at::Tensor& clean, const at::Tensor& noise,
                    const at::Tensor& timesteps) const;

 private:
  // Factors of clean and noise, [B, 1, ...] as `like` wants them.
  std::pair<at::Tensor, at::Tensor> levels(const at::Tensor& timesteps,
                                           const at::Tensor& like) const;

  PredictionType prediction_;
  double timestep_count_;
  at::Tensor alphas_;  // [num_train_timesteps] f32; undefined for flow matching
};

}  // namespace yard::models
