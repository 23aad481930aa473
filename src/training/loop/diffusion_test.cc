#include "loop/diffusion.h"

#include <gtest/gtest.h>

#include <cmath>

#include "loop/learning_rate.h"

namespace yard::loop {
namespace {

// Golden values: diffusers 0.42 DDPMScheduler(...).alphas_cumprod, in f32.
TEST(DiffusionScheduleTest, AlphasAreThoseOfDiffusers) {
  const DiffusionSchedule scaled(DiffusionRecipe{});
  EXPECT_NEAR(scaled.alpha_cumprod(0), 0.999149978, 2e-05);
  EXPECT_NEAR(scaled.alpha_cumprod(1), 0.998296022, 2e-05);
  EXPECT_NEAR(scaled.alpha_cumprod(250), 0.673792303, 1.35e-05);
  EXPECT_NEAR(scaled.alpha_cumprod(500), 0.276332468, 5.53e-06);
  EXPECT_NEAR(scaled.alpha_cumprod(998), 0.00471669575, 9.43e-08);
  EXPECT_NEAR(scaled.alpha_cumprod(999), 0.00466009509, 9.32e-08);
  const DiffusionSchedule linear(DiffusionRecipe{
      .beta_schedule = BetaSchedule::kLinear, .beta_start = 1e-4, .beta_end = 0.02});
  EXPECT_NEAR(linear.alpha_cumprod(0), 0.999899983, 2e-05);
  EXPECT_NEAR(linear.alpha_cumprod(1), 0.999780059, 2e-05);
  EXPECT_NEAR(linear.alpha_cumprod(250), 0.521422982, 1.04e-05);
  EXPECT_NEAR(linear.alpha_cumprod(500), 0.0777966529, 1.56e-06);
  EXPECT_NEAR(linear.alpha_cumprod(998), 4.11819419e-05, 1e-09);
  EXPECT_NEAR(linear.alpha_cumprod(999), 4.03583035e-05, 1e-09);
  const DiffusionSchedule cosine(DiffusionRecipe{.beta_schedule = BetaSchedule::kSquaredCosCap});
  EXPECT_NEAR(cosine.alpha_cumprod(0), 0.999958694, 2e-05);
  EXPECT_NEAR(cosine.alpha_cumprod(1), 0.99991256, 2e-05);
  EXPECT_NEAR(cosine.alpha_cumprod(250), 0.845888019, 1.69e-05);
  EXPECT_NEAR(cosine.alpha_cumprod(500), 0.492285043, 9.85e-06);
  EXPECT_NEAR(cosine.alpha_cumprod(998), 2.42876627e-06, 1e-09);
  EXPECT_NEAR(cosine.alpha_cumprod(999), 2.42873499e-09, 1e-09);
}

TEST(DiffusionScheduleTest, SignalAndNoiseKeepTheVariance) {
  const DiffusionSchedule schedule(DiffusionRecipe{});
  for (const int64_t t : {0, 1, 500, 999})
    EXPECT_NEAR(std::pow(schedule.signal(t), 2) + std::pow(schedule.noise(t), 2), 1, 1e-12);
}

TEST(DiffusionScheduleTest, MinSnrCapsTheWeightOfCleanTimesteps) {
  DiffusionRecipe recipe{.min_snr_gamma = 5};
  const DiffusionSchedule epsilon(recipe);
  const double snr0 = epsilon.alpha_cumprod(0) / (1 - epsilon.alpha_cumprod(0));
  EXPECT_NEAR(epsilon.loss_weight(0), 5 / snr0, 1e-9);
  EXPECT_NEAR(epsilon.loss_weight(999), 1, 1e-12);
  recipe.prediction = Prediction::kVelocity;
  const DiffusionSchedule velocity(recipe);
  EXPECT_NEAR(velocity.loss_weight(0), 5 / (snr0 + 1), 1e-9);
  EXPECT_EQ(DiffusionSchedule(DiffusionRecipe{}).loss_weight(0), 1);
}

// Golden values: diffusers 0.42 DDIMScheduler(steps_offset=1, set_alpha_to_one=False,
// clip_sample=False).step() on x = 0.3, output = -0.7.
TEST(DdimTest, StepsAreThoseOfDiffusers) {
  const auto e = plan_ddim(DiffusionSchedule(DiffusionRecipe{}), Prediction::kEpsilon, 25);
  EXPECT_EQ(e[0].timestep, 961);
  EXPECT_NEAR(e[0].x_factor * 0.3 + e[0].output_factor * -0.7, 0.548606114, 1e-5);
  EXPECT_EQ(e[1].timestep, 921);
  EXPECT_NEAR(e[1].x_factor * 0.3 + e[1].output_factor * -0.7, 0.532289647, 1e-5);
  EXPECT_EQ(e[12].timestep, 481);
  EXPECT_NEAR(e[12].x_factor * 0.3 + e[12].output_factor * -0.7, 0.406420254, 1e-5);
  EXPECT_EQ(e[24].timestep, 1);
  EXPECT_NEAR(e[24].x_factor * 0.3 + e[24].output_factor * -0.7, 0.308627531, 1e-5);
  const auto v = plan_ddim(DiffusionSchedule(DiffusionRecipe{}), Prediction::kVelocity, 25);
  EXPECT_EQ(v[0].timestep, 961);
  EXPECT_NEAR(v[0].x_factor * 0.3 + v[0].output_factor * -0.7, 0.314802639, 1e-5);
  EXPECT_EQ(v[1].timestep, 921);
  EXPECT_NEAR(v[1].x_factor * 0.3 + v[1].output_factor * -0.7, 0.31725818, 1e-5);
  EXPECT_EQ(v[12].timestep, 481);
  EXPECT_NEAR(v[12].x_factor * 0.3 + v[12].output_factor * -0.7, 0.342744816, 1e-5);
  EXPECT_EQ(v[24].timestep, 1);
  EXPECT_NEAR(v[24].x_factor * 0.3 + v[24].output_factor * -0.7, 0.308469928, 1e-5);
}

TEST(DdimTest, PlansEveryStepCount) {
  const DiffusionSchedule schedule(DiffusionRecipe{.train_timesteps = 7});
  for (int64_t count = 1; count <= 7; ++count) {
    const auto steps = plan_ddim(schedule, Prediction::kEpsilon, count);
    ASSERT_EQ(steps.size(), static_cast<size_t>(count));
    for (const DdimStep& step : steps) EXPECT_TRUE(step.timestep >= 0 && step.timestep < 7);
  }
}

// Golden values: diffusers.optimization.get_scheduler(name, num_warmup_steps=4,
// num_training_steps=20).
TEST(LearningRateTest, SchedulesAreThoseOfDiffusers) {
  StageRecipe stage{.steps = 20, .learning_rate = 1, .warmup_steps = 4};
  stage.schedule = LearningRateShape::kConstant;
  EXPECT_NEAR(learning_rate_at(stage, 0), 0, 1e-8);
  EXPECT_NEAR(learning_rate_at(stage, 1), 0.25, 1e-8);
  EXPECT_NEAR(learning_rate_at(stage, 3), 0.75, 1e-8);
  EXPECT_NEAR(learning_rate_at(stage, 4), 1, 1e-8);
  EXPECT_NEAR(learning_rate_at(stage, 5), 1, 1e-8);
  EXPECT_NEAR(learning_rate_at(stage, 12), 1, 1e-8);
  EXPECT_NEAR(learning_rate_at(stage, 19), 1, 1e-8);
  stage.schedule = LearningRateShape::kLinear;
  EXPECT_NEAR(learning_rate_at(stage, 0), 0, 1e-8);
  EXPECT_NEAR(learning_rate_at(stage, 1), 0.25, 1e-8);
  EXPECT_NEAR(learning_rate_at(stage, 3), 0.75, 1e-8);
  EXPECT_NEAR(learning_rate_at(stage, 4), 1, 1e-8);
  EXPECT_NEAR(learning_rate_at(stage, 5), 0.9375, 1e-8);
  EXPECT_NEAR(learning_rate_at(stage, 12), 0.5, 1e-8);
  EXPECT_NEAR(learning_rate_at(stage, 19), 0.0625, 1e-8);
  stage.schedule = LearningRateShape::kCosine;
  EXPECT_NEAR(learning_rate_at(stage, 0), 0, 1e-8);
  EXPECT_NEAR(learning_rate_at(stage, 1), 0.25, 1e-8);
  EXPECT_NEAR(learning_rate_at(stage, 3), 0.75, 1e-8);
  EXPECT_NEAR(learning_rate_at(stage, 4), 1, 1e-8);
  EXPECT_NEAR(learning_rate_at(stage, 5), 0.99039264, 1e-8);
  EXPECT_NEAR(learning_rate_at(stage, 12), 0.5, 1e-8);
  EXPECT_NEAR(learning_rate_at(stage, 19), 0.0096073598, 1e-8);
}

}  // namespace
}  // namespace yard::loop
