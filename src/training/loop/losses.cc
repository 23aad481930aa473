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
  at::Tensor timesteps;  // [B] i64
  at::Tensor signal, noise, weight;
};

NoiseLevels draw_levels(const DiffusionSchedule& schedule, std::span<const uint64_t> ids,
                        const Draws& draws) {
  const auto count = static_cast<int64_t>(ids.size());
  std::vector<int64_t> timesteps;
  std::vector<float> signal, noise, weight;
  for (const uint64_t id : ids) {
    const int64_t t = tensor::draw_below(
        {.seed = draws.seed, .purpose = draws.timestep, .step = draws.step, .sample = id},
        schedule.timestep_count());
    timesteps.push_back(t);
    signal.push_back(static_cast<float>(schedule.signal(t)));
    noise.push_back(static_cast<float>(schedule.noise(t)));
    weight.push_back(static_cast<float>(schedule.loss_weight(t)));
  }
  const std::vector<int64_t> shape = {count, 1, 1, 1};
  return {tensor::copy_of(std::span<const int64_t>(timesteps), {count}),
          tensor::copy_of(std::span<const float>(signal), shape),
          tensor::copy_of(std::span<const float>(noise), shape),
          tensor::copy_of(std::span<const float>(weight), shape)};
}

}  // namespace

at::Tensor denoiser_loss(const models::UNet2DConditionModel& unet,
                         const DiffusionSchedule& schedule, Prediction prediction,
                         const at::Tensor& latents, const at::Tensor& context,
                         std::span<const uint64_t> ids, const Draws& draws, bool bf16) {
  const NoiseLevels levels = draw_levels(schedule, ids, draws);
  const at::Device device = latents.device();
  const at::Tensor signal = levels.signal.to(device), noise = levels.noise.to(device);
  const at::Tensor gauss = noise_like(latents, ids, draws.seed, draws.noise, draws.step);
  const at::Tensor noisy = signal * latents + noise * gauss;
  const at::Tensor target =
      prediction == Prediction::kEpsilon ? gauss : signal * gauss - noise * latents;
  at::Tensor output;
  {
    tensor::Autocast autocast(device.type(), bf16);
    output = unet.forward(noisy, levels.timesteps.to(device), context).to(at::kFloat);
  }
  const at::Tensor difference = output - target;
  return (difference * difference * levels.weight.to(device)).mean();
}

}  // namespace yard::loop
