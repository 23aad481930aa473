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

// Of each sample, [B].
struct DrawnTimesteps {
  at::Tensor conditions;  // f32
  at::Tensor noise;       // as models::TrainingNoise takes them
  at::Tensor weights;     // f32
};

int64_t timestep_of(const DiffusionSchedule& schedule, const Draws& draws, uint64_t id, size_t i) {
  const tensor::Draw draw{
      .seed = draws.seed, .purpose = draws.timestep, .step = draws.step, .sample = id};
  if (draws.bucket_count == 0) return schedule.draw_timestep(draw);
  return schedule.draw_timestep_in(
      draw, (draws.first_bucket + static_cast<int64_t>(i)) % draws.bucket_count,
      draws.bucket_count);
}

DrawnTimesteps draw_timesteps(const DiffusionSchedule& schedule, std::span<const uint64_t> ids,
                              const Draws& draws, at::Device device) {
  std::vector<float> conditions, weights;
  for (size_t i = 0; i < ids.size(); ++i) {
    const NoiseLevel& level = schedule.level(timestep_of(schedule, draws, ids[i], i));
    conditions.push_back(static_cast<float>(level.condition));
    weights.push_back(static_cast<float>(level.weight));
  }
  const auto on_device = [&](std::span<const float> values) {
    return tensor::copy_of(values, {static_cast<int64_t>(values.size())}).to(device);
  };
  const at::Tensor told = on_device(conditions);
  const bool flow = schedule.recipe().prediction == Prediction::kFlow;
  return {told, flow ? told : told.to(at::kLong), on_device(weights)};
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
  const DrawnTimesteps times = draw_timesteps(schedule, ids, draws, device);
  const at::Tensor gauss = draw_noise(schedule, latents, ids, draws);
  const models::TrainingNoise& noise = schedule.training_noise();
  const at::Tensor noisy = noise.noisy(latents, gauss, times.noise);
  const at::Tensor target = noise.target(latents, gauss, times.noise);
  at::Tensor output;
  {
    tensor::Autocast autocast(device.type(), bf16);
    output = denoiser.forward(noisy, times.conditions, condition).to(at::kFloat);
  }
  const at::Tensor difference = output - target;
  return (difference * difference).mean({1, 2, 3}) * times.weights;
}

}  // namespace yard::loop
