// The noise process of diffusion training. How much noise a timestep has is what the scheduler says
// that the model is saved with (models/sampling_step.h): training and sampling have one table.
//
// Ho et al. 2020 (DDPM), Salimans and Ho 2022 (v prediction), Hang et al.
// 2023 (min-SNR weights), Choi et al. 2022 (P2 weights), Lin et al. 2024 (zero terminal SNR).
// Rectified flow (Liu et al. 2023), its shift and its logit-normal timesteps as Esser et al. 2024.
// Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "loop/recipe.h"
#include "models/sampling_step.h"
#include "models/scheduler_config.h"
#include "tensor/normal.h"

namespace yard::loop {

// The sampler that a recipe's model is saved with: DDIM without noise (Song et al. 2021), timesteps
// spaced "leading" with an offset of 1 as Stable Diffusion has it, or "trailing" under a zero
// terminal SNR; for a rectified flow DPM-Solver++ of order 1, which takes Euler steps.
models::SchedulerConfig scheduler_of(const DiffusionRecipe& recipe);

// A sample at one timestep.
struct NoiseLevel {
  // noisy = signal * clean + noise * gauss
  double signal = 0;
  double noise = 0;
  double condition = 0;  // what the model is told: the timestep
  double weight = 1;     // of its squared error
};

class DiffusionSchedule {
 public:
  explicit DiffusionSchedule(const DiffusionRecipe& recipe);

  int64_t timestep_count() const { return static_cast<int64_t>(levels_.size()); }
  const NoiseLevel& level(int64_t timestep) const { return levels_[static_cast<size_t>(timestep)]; }
  double signal(int64_t timestep) const { return level(timestep).signal; }
  double noise(int64_t timestep) const { return level(timestep).noise; }
  // Finite for every SNR, 0 too.
  double loss_weight(int64_t timestep) const { return level(timestep).weight; }
  double alpha_cumprod(int64_t timestep) const { return signal(timestep) * signal(timestep); }

  // A timestep for training.
  int64_t draw_timestep(const tensor::Draw& draw) const;
  // Uniform in the `bucket`-th of `bucket_count` equal parts of the timesteps; of at most as many
  // as there are timesteps.
  int64_t draw_timestep_in(const tensor::Draw& draw, int64_t bucket, int64_t bucket_count) const;

  const DiffusionRecipe& recipe() const { return recipe_; }
  // Takes i64 timesteps, or for a flow their conditions.
  const models::TrainingNoise& training_noise() const { return training_noise_; }

 private:
  void make_variance_preserving();
  void make_flow();

  const DiffusionRecipe recipe_;
  const models::TrainingNoise training_noise_;
  std::vector<NoiseLevel> levels_;
};

}  // namespace yard::loop
