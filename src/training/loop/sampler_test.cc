#include "loop/sampler.h"

#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include "loop/pipeline_folder.h"
#include "models/sampling_step.h"

namespace yard::loop {
namespace {

models::SamplingPlan plan_of(const DiffusionRecipe& diffusion, int64_t count) {
  Recipe recipe;
  recipe.diffusion = diffusion;
  recipe.sampling.steps = count;
  const auto plan = sampling_plan_of(recipe);
  EXPECT_TRUE(plan) << plan.error().message;
  return *plan;
}

// The next sample after x = 0.3, output = -0.7.
double next_of(const models::SamplingStep& step) {
  const auto value = [](double v) { return at::full({1}, v); };
  return models::take_step(step, value(0.3), value(-0.7), value(0), std::nullopt)
      .next.item<double>();
}

// Golden values: diffusers 0.42 DDIMScheduler(steps_offset=1, set_alpha_to_one=False,
// clip_sample=False).step().
TEST(SamplerTest, DdimStepsAreThoseOfDiffusers) {
  const auto e = plan_of(DiffusionRecipe{}, 25).steps;
  EXPECT_EQ(e[0].timestep, 961);
  EXPECT_EQ(e[24].timestep, 1);
  EXPECT_NEAR(next_of(e[0]), 0.548606114, 1e-5);
  EXPECT_NEAR(next_of(e[12]), 0.406420254, 1e-5);
  EXPECT_NEAR(next_of(e[24]), 0.308627531, 1e-5);
  const auto v = plan_of(DiffusionRecipe{.prediction = Prediction::kVelocity}, 25).steps;
  EXPECT_NEAR(next_of(v[0]), 0.314802639, 1e-5);
  EXPECT_NEAR(next_of(v[12]), 0.342744816, 1e-5);
}

// The same with rescale_betas_zero_snr=True, timestep_spacing="trailing", and
// DPMSolverMultistepScheduler(prediction_type="flow_prediction", use_flow_sigmas=True,
// flow_shift=3, solver_order=1), which takes Euler steps.
TEST(SamplerTest, StepsUnderZeroTerminalSnrAndOfAFlowAreThoseOfDiffusers) {
  const DiffusionRecipe zero{.prediction = Prediction::kVelocity, .zero_terminal_snr = true};
  const auto z = plan_of(zero, 25).steps;
  EXPECT_EQ(z[0].timestep, 999);
  EXPECT_NEAR(next_of(z[0]), 0.313501954, 2e-5);
  EXPECT_NEAR(next_of(z[24]), 0.41507709, 2e-5);
  const auto f = plan_of({.prediction = Prediction::kFlow, .flow_shift = 3}, 10).steps;
  EXPECT_NEAR(next_of(f[0]), 0.325007766, 2e-5);
  EXPECT_NEAR(next_of(f[5]), 0.358330071, 2e-5);
  EXPECT_NEAR(next_of(f[9]), 0.474854171, 2e-5);
}

}  // namespace
}  // namespace yard::loop
