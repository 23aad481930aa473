// The noise schedule of diffusion training and the DDIM sampler's plan: numbers only, no tensors.
//
// Ho et al. 2020 (DDPM), Song et al. 2021 (DDIM), Salimans and Ho 2022 (v prediction), Hang et al.
// 2023 (min-SNR weights); values as diffusers' DDPMScheduler and DDIMScheduler compute them. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "loop/recipe.h"

namespace yard::loop {

class DiffusionSchedule {
 public:
  explicit DiffusionSchedule(const DiffusionRecipe& recipe);

  int64_t timestep_count() const { return static_cast<int64_t>(alphas_cumprod_.size()); }
  double alpha_cumprod(int64_t timestep) const {
    return alphas_cumprod_[static_cast<size_t>(timestep)];
  }
  // noisy = signal * clean + noise * gauss
  double signal(int64_t timestep) const;
  double noise(int64_t timestep) const;
  // Weight of a sample's squared error; 1 without min_snr_gamma.
  double loss_weight(int64_t timestep) const;

 private:
  std::vector<double> alphas_cumprod_;
  Prediction prediction_;
  double min_snr_gamma_;
};

// One step of the sampler: next = x_factor * x + output_factor * model(x, timestep).
struct DdimStep {
  int64_t timestep = 0;
  double x_factor = 0;
  double output_factor = 0;
};

// eta 0, timesteps spaced "leading" with an offset of 1, as Stable Diffusion's configurations have
// it. 1 <= step_count <= timestep_count().
std::vector<DdimStep> plan_ddim(const DiffusionSchedule& schedule, Prediction prediction,
                                int64_t step_count);

}  // namespace yard::loop
