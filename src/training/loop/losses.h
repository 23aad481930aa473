// What training minimises, for one micro-batch of one rank.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

#include "loop/denoiser.h"
#include "loop/diffusion.h"
#include "loop/recipe.h"
#include "models/autoencoder_kl.h"
#include "tensor/normal.h"

namespace yard::loop {

// Where the random numbers of a batch come from: training draws anew each step, evaluation never.
struct Draws {
  uint64_t seed = 0;
  uint64_t step = 0;
  tensor::Purpose noise = tensor::Purpose::kNoise;
  tensor::Purpose timestep = tensor::Purpose::kTimestep;
  // > 0: timesteps are drawn in equal parts, the `first_bucket`-th for the first sample, the next
  // one for the next, and so on; without noise offset: how evaluation looks at a model.
  int64_t bucket_count = 0;
  int64_t first_bucket = 0;
};

// N(0, 1) of `like`'s shape, [B, ...], row i drawn for ids[i].
at::Tensor noise_like(const at::Tensor& like, std::span<const uint64_t> ids, uint64_t seed,
                      tensor::Purpose purpose, uint64_t step);

// pictures [B, 3, H, W] in [-1, 1] -> scalar: reconstruction error, mean over values, plus
// kl_weight * KL / values of a picture, mean over samples. The latents are drawn. With a kl_weight
// of 0, and with `draws` null (evaluation), they are the distribution's mean, without the KL term.
at::Tensor autoencoder_loss(const models::AutoencoderKL& autoencoder, const StageRecipe& stage,
                            const at::Tensor& pictures, std::span<const uint64_t> ids,
                            const Draws* draws, bool bf16);

// latents [B, C, h, w] (scaled) -> [B]: squared error of the prediction, mean over a sample's
// values, weighted.
at::Tensor denoiser_losses(const Denoiser& denoiser, const DiffusionSchedule& schedule,
                           const at::Tensor& latents, const DenoiserCondition& condition,
                           std::span<const uint64_t> ids, const Draws& draws, bool bf16);

}  // namespace yard::loop
