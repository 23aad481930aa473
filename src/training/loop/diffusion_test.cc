#include "loop/diffusion.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <set>

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

TEST(DiffusionScheduleTest, ZeroTerminalSnrEndsInPureNoiseAndKeepsTheFirst) {
  const DiffusionSchedule usual(DiffusionRecipe{});
  const DiffusionSchedule zero(
      DiffusionRecipe{.prediction = Prediction::kVelocity, .zero_terminal_snr = true});
  EXPECT_EQ(zero.signal(999), 0);
  EXPECT_EQ(zero.noise(999), 1);
  EXPECT_NEAR(zero.signal(0), usual.signal(0), 1e-6);
}

TEST(DiffusionScheduleTest, WeightsAreFiniteAtEverySnr) {
  for (const Prediction prediction : {Prediction::kVelocity, Prediction::kSample}) {
    for (const double p2_gamma : {0.0, 1.0}) {
      // beta_start 0: the first timestep has no noise at all.
      const DiffusionSchedule schedule(DiffusionRecipe{.beta_schedule = BetaSchedule::kLinear,
                                                       .beta_start = 0,
                                                       .beta_end = 0.02,
                                                       .prediction = prediction,
                                                       .min_snr_gamma = p2_gamma > 0 ? 0.0 : 5.0,
                                                       .p2_gamma = p2_gamma,
                                                       .zero_terminal_snr = true});
      for (int64_t t = 0; t < 1000; ++t) {
        EXPECT_TRUE(std::isfinite(schedule.loss_weight(t))) << t;
        EXPECT_GE(schedule.loss_weight(t), 0) << t;
      }
    }
  }
}

TEST(DiffusionScheduleTest, P2WeightsAreThoseOfThePaper) {
  const DiffusionSchedule schedule(DiffusionRecipe{.p2_gamma = 0.5, .p2_k = 2});
  for (const int64_t t : {0, 300, 999}) {
    const double alpha = schedule.alpha_cumprod(t);
    EXPECT_NEAR(schedule.loss_weight(t), 1 / std::sqrt(2 + alpha / (1 - alpha)), 1e-12);
  }
}

TEST(DiffusionScheduleTest, FlowGoesStraightFromPictureToNoise) {
  const DiffusionSchedule plain(DiffusionRecipe{.prediction = Prediction::kFlow});
  EXPECT_NEAR(plain.signal(499), 0.5, 1e-12);
  EXPECT_EQ(plain.noise(999), 1);
  EXPECT_EQ(plain.level(999).condition, 1000);
  const DiffusionSchedule shifted(
      DiffusionRecipe{.prediction = Prediction::kFlow, .flow_shift = 3});
  EXPECT_NEAR(shifted.noise(499), 0.75, 1e-12) << "3 * 0.5 / (1 + 2 * 0.5)";
}

TEST(TimestepTest, LogitNormalIsInTheMiddleMoreOftenAndUniformEverywhere) {
  const auto histogram = [](const DiffusionRecipe& recipe) {
    const DiffusionSchedule schedule(recipe);
    std::array<double, 4> share{};
    constexpr int kDraws = 20'000;
    for (int i = 0; i < kDraws; ++i) {
      const int64_t t = schedule.draw_timestep({.seed = 3, .sample = static_cast<uint64_t>(i)});
      share[static_cast<size_t>(t / 250)] += 1.0 / kDraws;
    }
    return share;
  };
  for (const double share : histogram({})) EXPECT_NEAR(share, 0.25, 0.02);
  // P(logit < log(1/3)) of N(0, 1) is 0.136.
  const auto normal = histogram({.timestep_sampling = TimestepSampling::kLogitNormal});
  EXPECT_NEAR(normal[0], 0.136, 0.01);
  EXPECT_NEAR(normal[1], 0.364, 0.02);
  EXPECT_NEAR(normal[3], 0.136, 0.01);
  const auto noisy = histogram(
      {.timestep_sampling = TimestepSampling::kLogitNormal, .logit_mean = 2, .logit_std = 0.5});
  EXPECT_GT(noisy[3], 0.9);
}

TEST(TimestepTest, BucketsShareTheTimestepsOut) {
  const DiffusionSchedule schedule(DiffusionRecipe{.train_timesteps = 10});
  std::set<int64_t> seen;
  for (uint64_t i = 0; i < 100; ++i) seen.insert(schedule.draw_timestep_in({.sample = i}, 1, 3));
  EXPECT_EQ(seen, (std::set<int64_t>{3, 4, 5}));
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

TEST(LearningRateTest, PolynomialAndFloors) {
  StageRecipe stage{.steps = 20, .learning_rate = 1, .warmup_steps = 4};
  stage.schedule = LearningRateShape::kPolynomial;
  stage.power = 3;
  stage.final_learning_rate = 0.1;
  EXPECT_NEAR(learning_rate_at(stage, 4), 1, 1e-12);
  EXPECT_NEAR(learning_rate_at(stage, 12), 0.1 + 0.9 / 8, 1e-12);
  EXPECT_NEAR(learning_rate_at(stage, 20), 0.1, 1e-12);
  stage.schedule = LearningRateShape::kCosine;
  EXPECT_NEAR(learning_rate_at(stage, 12), 0.55, 1e-12);
}

}  // namespace
}  // namespace yard::loop
