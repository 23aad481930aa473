#include "loop/sampler.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include "loop/diffusion.h"
#include "loop/losses.h"
#include "models/sampling_step.h"
#include "tensor/autocast.h"

namespace yard::loop {
namespace {

// The model's output for x at one timestep, guided.
class GuidedModel {
 public:
  GuidedModel(const Networks& networks, const SamplerInput& input)
      : denoiser_(*networks.denoiser()), input_(input) {
    const at::Tensor empty = input.empty_tokens.expand({input.tokens.size(0), -1});
    const at::Tensor tokens = guided() ? at::cat({empty, input.tokens}) : input.tokens;
    condition_ = networks.encode_captions(tokens, input.bf16);
    // As if each were a picture of that size, of which nothing was cut.
    const auto height = static_cast<float>(input.height), width = static_cast<float>(input.width);
    if (denoiser_.wants().sizes)
      condition_.sizes =
          at::tensor({height, width, 0.0F, 0.0F, height, width}).expand({tokens.size(0), 6});
  }

  at::Tensor operator()(const at::Tensor& x, double time) const {
    const at::Tensor both = guided() ? at::cat({x, x}) : x;
    const at::Tensor times =
        at::full({both.size(0)}, time, at::TensorOptions(both.device()).dtype(at::kFloat));
    tensor::Autocast autocast(x.device().type(), input_.bf16);
    const at::Tensor out = denoiser_.forward(both, times, condition_).to(at::kFloat);
    if (!guided()) return out;
    const std::vector<at::Tensor> halves = out.chunk(2);
    const at::Tensor guided = halves[0] + (halves[1] - halves[0]) * input_.guidance;
    if (input_.guidance_rescale == 0) return guided;
    const at::Tensor scale = deviation(halves[1]) / deviation(guided);
    return guided * (scale * input_.guidance_rescale + (1 - input_.guidance_rescale));
  }

 private:
  bool guided() const { return input_.guidance != 1; }
  static at::Tensor deviation(const at::Tensor& x) {
    return x.std(at::IntArrayRef({1, 2, 3}), /*unbiased=*/true, /*keepdim=*/true);
  }

  const Denoiser& denoiser_;
  const SamplerInput& input_;
  DenoiserCondition condition_;
};

}  // namespace

at::Tensor sample_pictures(const Networks& networks, const models::SamplingPlan& plan,
                           const SamplerInput& input) {
  c10::NoGradGuard no_grad;
  const GuidedModel model(networks, input);
  const int64_t factor = networks.factors().autoencoder;
  const at::Tensor like = at::zeros({input.tokens.size(0), networks.denoiser()->channels(),
                                     input.height / factor, input.width / factor});
  // Noise 0 is the start, noise i + 1 that of step i.
  const auto noise = [&](size_t number) {
    return noise_like(like, input.indices, input.seed, tensor::Purpose::kSampling, number);
  };
  at::Tensor x = noise(0) * plan.initial_scale;
  std::optional<at::Tensor> clean;
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    const models::SamplingStep& step = plan.steps[i];
    const at::Tensor output = model(models::model_input(step, x), step.timestep);
    const models::SamplingResult taken = models::take_step(
        step, x, output, clean,
        step.next_from_noise == 0 ? std::nullopt : std::optional<at::Tensor>(noise(i + 1)));
    x = taken.next;
    clean = taken.clean;
  }
  tensor::Autocast autocast(x.device().type(), input.bf16);
  return networks.autoencoder()->decode(x / networks.scaling_factor()).to(at::kFloat);
}

Result<models::SamplingPlan> sampling_plan_of(const Recipe& recipe) {
  return models::plan_sampling(scheduler_of(recipe.diffusion),
                               {.step_count = recipe.sampling.steps});
}

}  // namespace yard::loop
