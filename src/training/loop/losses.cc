#include "loop/losses.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/mean.h>

#include <vector>

#include "tensor/autocast.h"
#include "tensor/host_tensor.h"

namespace yard::loop {

using tensor::Purpose;

at::Tensor noise_like(const at::Tensor& like, std::span<const uint64_t> ids, uint64_t seed,
                      Purpose purpose, uint64_t step) {
  at::Tensor noise = at::empty(like.sizes(), at::kFloat);
  const std::span<float> values = tensor::floats_of(noise);
  const size_t row = values.size() / ids.size();
  for (size_t i = 0; i < ids.size(); ++i) {
    tensor::fill_normal({.seed = seed, .purpose = purpose, .step = step, .sample = ids[i]},
                        values.subspan(i * row, row));
  }
  return noise.to(like.device());
}

at::Tensor autoencoder_loss(const models::AutoencoderKL& autoencoder, const StageRecipe& stage,
                            const at::Tensor& pictures, std::span<const uint64_t> ids,
                            const Draws* draws, bool bf16) {
  at::Tensor mean, logvar, latents, output;
  {
    tensor::Autocast autocast(pictures.device().type(), bf16);
    const models::LatentDistribution distribution = autoencoder.encode(pictures);
    mean = distribution.mean.to(at::kFloat);
    logvar = distribution.logvar.to(at::kFloat);
    latents = mean;
    if (draws != nullptr && stage.kl_weight > 0)
      latents = mean + (logvar * 0.5).exp() *
                           noise_like(mean, ids, draws->seed, Purpose::kLatentSample, draws->step);
    output = autoencoder.decode(latents).to(at::kFloat);
  }
  const at::Tensor difference = output - pictures;
  const at::Tensor error = stage.reconstruction == Reconstruction::kL1
                               ? difference.abs().mean()
                               : (difference * difference).mean();
  if (draws == nullptr || stage.kl_weight == 0) return error;
  const at::Tensor kl = (mean * mean + logvar.exp() - 1 - logvar).sum() * 0.5;
  return error + kl * (stage.kl_weight / static_cast<double>(pictures.numel()));
}

namespace {

// Per sample factors, each as [B, 1, 1, 1].
struct NoiseLevels {
  at::Tensor conditions;  // [B] f32
  at::Tensor signal, noise, target_clean, target_gauss;
  at::Tensor weights;  // [B]
};

int64_t timestep_of(const DiffusionSchedule& schedule, const Draws& draws, uint64_t id, size_t i) {
  const tensor::Draw draw{
      .seed = draws.seed, .purpose = draws.timestep, .step = draws.step, .sample = id};
  if (draws.bucket_count == 0) return schedule.draw_timestep(draw);
  return schedule.draw_timestep_in(
      draw, (draws.first_bucket + static_cast<int64_t>(i)) % draws.bucket_count,
      draws.bucket_count);
}

NoiseLevels draw_levels(const DiffusionSchedule& schedule, std::span<const uint64_t> ids,
                        const Draws& draws, at::Device device) {
  std::vector<NoiseLevel> levels;
  for (size_t i = 0; i < ids.size(); ++i)
    levels.push_back(schedule.level(timestep_of(schedule, draws, ids[i], i)));
  const auto count = static_cast<int64_t>(ids.size());
  const auto column = [&](double NoiseLevel::*field, at::IntArrayRef shape) {
    std::vector<float> values;
    for (const NoiseLevel& level : levels) values.push_back(static_cast<float>(level.*field));
    return tensor::copy_of(std::span<const float>(values), shape).to(device);
  };
  const std::vector<int64_t> wide = {count, 1, 1, 1}, flat = {count};
  return {.conditions = column(&NoiseLevel::condition, flat),
          .signal = column(&NoiseLevel::signal, wide),
          .noise = column(&NoiseLevel::noise, wide),
          .target_clean = column(&NoiseLevel::target_clean, wide),
          .target_gauss = column(&NoiseLevel::target_gauss, wide),
          .weights = column(&NoiseLevel::weight, flat)};
}

// In training a constant per sample and channel comes on top, so that pictures may become bright
// or dark as a whole (Guttenberg 2023, "Diffusion with offset noise").
at::Tensor draw_noise(const DiffusionSchedule& schedule, const at::Tensor& latents,
                      std::span<const uint64_t> ids, const Draws& draws) {
  at::Tensor gauss = noise_like(latents, ids, draws.seed, draws.noise, draws.step);
  const double offset = schedule.recipe().noise_offset;
  if (offset == 0 || draws.bucket_count > 0) return gauss;
  const at::Tensor channels = latents.slice(2, 0, 1).slice(3, 0, 1);
  return gauss + noise_like(channels, ids, draws.seed, Purpose::kNoiseOffset, draws.step) * offset;
}

}  // namespace

at::Tensor denoiser_losses(const Denoiser& denoiser, const DiffusionSchedule& schedule,
                           const at::Tensor& latents, const DenoiserCondition& condition,
                           std::span<const uint64_t> ids, const Draws& draws, bool bf16) {
  const at::Device device = latents.device();
  const NoiseLevels levels = draw_levels(schedule, ids, draws, device);
  const at::Tensor gauss = draw_noise(schedule, latents, ids, draws);
  const at::Tensor noisy = levels.signal * latents + levels.noise * gauss;
  const at::Tensor target = levels.target_gauss * gauss + levels.target_clean * latents;
  at::Tensor output;
  {
    tensor::Autocast autocast(device.type(), bf16);
    output = denoiser.forward(noisy, levels.conditions, condition).to(at::kFloat);
  }
  const at::Tensor difference = output - target;
  return (difference * difference).mean({1, 2, 3}) * levels.weights;
}

}  // namespace yard::loop
