#include "loop/sampler.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include "loop/losses.h"
#include "tensor/autocast.h"

namespace yard::loop {
namespace {

// The model's output for x at one timestep, guided.
class GuidedModel {
 public:
  GuidedModel(const Networks& networks, const SamplerInput& input, const SamplingRecipe& recipe,
              bool bf16)
      : unet_(*networks.unet()), recipe_(recipe), bf16_(bf16) {
    const at::Tensor empty = input.empty_tokens.expand({input.tokens.size(0), -1});
    const at::Tensor tokens = guided() ? at::cat({empty, input.tokens}) : input.tokens;
    tensor::Autocast autocast(tokens.device().type(), bf16_);
    context_ = networks.text_encoder()->forward(tokens).last_hidden_state;
  }

  at::Tensor operator()(const at::Tensor& x, double condition) const {
    const at::Tensor both = guided() ? at::cat({x, x}) : x;
    const at::Tensor timesteps =
        at::full({both.size(0)}, condition, at::TensorOptions(both.device()).dtype(at::kFloat));
    tensor::Autocast autocast(x.device().type(), bf16_);
    const at::Tensor out = unet_.forward(both, timesteps, context_).to(at::kFloat);
    if (!guided()) return out;
    const std::vector<at::Tensor> halves = out.chunk(2);
    const at::Tensor guided = halves[0] + (halves[1] - halves[0]) * recipe_.guidance;
    if (recipe_.guidance_rescale == 0) return guided;
    const at::Tensor scale = deviation(halves[1]) / deviation(guided);
    return guided * (scale * recipe_.guidance_rescale + (1 - recipe_.guidance_rescale));
  }

 private:
  bool guided() const { return recipe_.guidance != 1; }
  static at::Tensor deviation(const at::Tensor& x) {
    return x.std(at::IntArrayRef({1, 2, 3}), /*unbiased=*/true, /*keepdim=*/true);
  }

  const models::UNet2DConditionModel& unet_;
  const SamplingRecipe& recipe_;
  const bool bf16_;
  at::Tensor context_;
};

}  // namespace

at::Tensor sample_pictures(const Networks& networks, const DiffusionSchedule& schedule,
                           const Recipe& recipe, const SamplerInput& input) {
  c10::NoGradGuard no_grad;
  const bool bf16 = recipe.precision == Precision::kBF16;
  const GuidedModel model(networks, input, recipe.sampling, bf16);
  const int64_t side = input.resolution / networks.factors().autoencoder;
  at::Tensor x =
      at::zeros({input.tokens.size(0), networks.unet()->config().in_channels, side, side});
  x = noise_like(x, input.indices, recipe.seed, tensor::Purpose::kSampling, 0);
  for (const SamplerStep& step : plan_sampler(schedule, recipe.sampling.steps))
    x = x * step.x_factor + model(x, step.condition) * step.output_factor;
  tensor::Autocast autocast(x.device().type(), bf16);
  return networks.autoencoder()->decode(x / networks.scaling_factor()).to(at::kFloat);
}

}  // namespace yard::loop
