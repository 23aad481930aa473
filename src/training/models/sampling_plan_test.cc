// What plans and configurations of schedulers promise by themselves; that samples are those of
// diffusers, step by step, is tested in tests/conformance/test_schedulers.py.
#include "models/sampling_plan.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "models/sampling_step.h"

namespace yard::models {
namespace {

constexpr std::array kKinds = {SchedulerKind::kDdpm, SchedulerKind::kDdim,
                               SchedulerKind::kDpmSolverMultistep, SchedulerKind::kEuler,
                               SchedulerKind::kFlowMatchEuler};

SchedulerConfig config_of(SchedulerKind kind) {
  SchedulerConfig config = *SchedulerConfig::parse_as(kind, Json::object(), "test");
  config.clip_sample = false;
  return config;
}

std::string error_of(const Json& json) {
  const auto config = SchedulerConfig::parse(json, "x");
  EXPECT_FALSE(config) << json;
  return config ? "" : config.error().message;
}

bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

// What a model that knows the picture would say.
double knowing_output(const SchedulerConfig& c, const SamplingStep& step, double sample,
                      double clean) {
  EXPECT_NE(step.clean_from_output, 0) << static_cast<int>(c.kind);
  return (clean - step.clean_from_sample * sample) / step.clean_from_output;
}

TEST(SamplingPlanTest, AModelThatKnowsThePictureIsLedToItByEveryScheduler) {
  for (const SchedulerKind kind : kKinds) {
    for (const PredictionType prediction :
         {PredictionType::kEpsilon, PredictionType::kVelocity, PredictionType::kSample}) {
      SchedulerConfig config = config_of(kind);
      if (kind != SchedulerKind::kFlowMatchEuler) config.prediction_type = prediction;
      const auto plan = plan_sampling(config, {.step_count = 12});
      ASSERT_TRUE(plan) << plan.error().message;
      ASSERT_EQ(plan->steps.size(), 12U);
      double sample = plan->initial_scale * 0.7, before = 0;
      for (const SamplingStep& step : plan->steps) {
        const double output = knowing_output(config, step, sample, 0.3);
        sample = step.next_from_sample * sample + step.next_from_output * output +
                 step.next_from_clean * 0.3 + step.next_from_previous_clean * before;
        before = 0.3;
      }
      EXPECT_NEAR(sample, 0.3, 1e-4) << static_cast<int>(kind);
      EXPECT_EQ(plan->steps.front().next_from_previous_clean, 0);
    }
  }
}

TEST(SamplingPlanTest, TimestepsFall) {
  for (const SchedulerKind kind : kKinds) {
    for (const TimestepSpacing spacing :
         {TimestepSpacing::kLeading, TimestepSpacing::kTrailing, TimestepSpacing::kLinspace}) {
      SchedulerConfig config = config_of(kind);
      config.timestep_spacing = spacing;
      for (const int64_t count : {1, 2, 3, 7, 49, 50, 333}) {
        const auto plan = plan_sampling(config, {.step_count = count});
        ASSERT_TRUE(plan) << plan.error().message;
        ASSERT_EQ(plan->steps.size(), static_cast<size_t>(count));
        for (size_t i = 1; i < plan->steps.size(); ++i)
          EXPECT_LT(plan->steps[i].timestep, plan->steps[i - 1].timestep);
        EXPECT_GE(plan->steps.back().timestep, 0);
      }
    }
  }
}

TEST(SamplingPlanTest, OnlyStochasticSchedulersDrawNoise) {
  SchedulerConfig ddim = config_of(SchedulerKind::kDdim);
  EXPECT_EQ(plan_sampling(ddim, {.step_count = 5})->steps[0].next_from_noise, 0);
  EXPECT_GT(plan_sampling(ddim, {.step_count = 5, .eta = 1})->steps[0].next_from_noise, 0);
  const auto ddpm = plan_sampling(config_of(SchedulerKind::kDdpm), {.step_count = 5});
  EXPECT_GT(ddpm->steps[0].next_from_noise, 0);
  EXPECT_EQ(ddpm->steps[4].next_from_noise, 0) << "the picture itself must be clean";
}

TEST(SamplingPlanTest, ZeroTerminalSnrHasNoSignalAtTheEnd) {
  SchedulerConfig config = config_of(SchedulerKind::kDdim);
  config.rescale_betas_zero_snr = true;
  const std::vector<float> alphas = alphas_cumprod(config);
  EXPECT_EQ(alphas.back(), 0);
  EXPECT_NEAR(alphas.front(), 1 - config.beta_start, 1e-6);
  config.timestep_spacing = TimestepSpacing::kTrailing;
  const auto plan = plan_sampling(config, {.step_count = 4});
  ASSERT_FALSE(plan);
  EXPECT_TRUE(has(plan.error().message, "cannot start where there is nothing but noise"));
  config.prediction_type = PredictionType::kVelocity;
  EXPECT_TRUE(plan_sampling(config, {.step_count = 4}));
}

TEST(SamplingPlanTest, StepsThatCannotBeAreRefused) {
  SchedulerConfig config = config_of(SchedulerKind::kDdim);
  for (const int64_t count : {int64_t{0}, int64_t{-1}, int64_t{1001}}) {
    const auto plan = plan_sampling(config, {.step_count = count});
    ASSERT_FALSE(plan);
    EXPECT_EQ(plan.error().code, Code::kInvalidArgument);
    EXPECT_TRUE(has(plan.error().message, "1 to 1000 steps"));
  }
  config.steps_offset = 1;
  EXPECT_TRUE(has(plan_sampling(config, {.step_count = 1000}).error().message, "'steps_offset'"));
  SchedulerConfig flow = config_of(SchedulerKind::kFlowMatchEuler);
  flow.use_dynamic_shifting = true;
  EXPECT_TRUE(has(plan_sampling(flow, {.step_count = 4}).error().message, "'mu'"));
}

TEST(SamplingPlanTest, MoreTokensShiftTowardsNoise) {
  const SchedulerConfig config = config_of(SchedulerKind::kFlowMatchEuler);
  EXPECT_DOUBLE_EQ(dynamic_shift(config, 256), 0.5);
  EXPECT_DOUBLE_EQ(dynamic_shift(config, 4096), 1.15);
}

TEST(SamplingStepTest, TheCleanPictureIsClipped) {
  const SamplingStep step{.clean_from_output = 1, .clean_limit = 1, .next_from_clean = 1};
  const at::Tensor output = at::arange(5, at::kFloat) - 2;
  const SamplingResult result = take_step(step, at::zeros({5}), output, {}, {});
  EXPECT_EQ(result.next.max().item<float>(), 1);
  EXPECT_EQ(result.next.min().item<float>(), -1);
}

TEST(SamplingStepDeathTest, NoiseThatIsWantedAndMissingIsABrokenContract) {
  const SamplingStep step{.clean_from_output = 1, .next_from_clean = 1, .next_from_noise = 1};
  EXPECT_DEATH(take_step(step, at::zeros({5}), at::zeros({5}), {}, {}), "term");
}

TEST(TrainingNoiseTest, VelocityGivesNoiseAndPictureBack) {
  SchedulerConfig config = config_of(SchedulerKind::kDdim);
  config.prediction_type = PredictionType::kVelocity;
  const TrainingNoise training(config);
  const at::Tensor clean = (at::arange(24, at::kFloat) * 0.37).sin().view({2, 3, 2, 2});
  const at::Tensor noise = (at::arange(24, at::kFloat) * 1.7).cos().view({2, 3, 2, 2});
  const at::Tensor times = at::arange(2, at::kLong) * 700 + 50;
  const at::Tensor noisy = training.noisy(clean, noise, times);
  const at::Tensor velocity = training.target(clean, noise, times);
  const float alpha = alphas_cumprod(config)[750];
  EXPECT_TRUE(at::allclose(noisy[1] * std::sqrt(alpha) - velocity[1] * std::sqrt(1 - alpha),
                           clean[1], 1e-4, 1e-5));
}

TEST(SchedulerConfigTest, ValuesThatWeDoNotHaveAreRefusedByKey) {
  const auto ddim = [](const Json& changes) {
    Json json = {{"_class_name", "DDIMScheduler"}};
    json.update(changes);
    return error_of(json);
  };
  EXPECT_TRUE(has(error_of({{"_class_name", "EulerDiscreteSchedule"}}),
                  "did you mean 'EulerDiscreteScheduler'"));
  EXPECT_TRUE(has(error_of(Json::object()), "scheduler class '' is not supported"));
  EXPECT_TRUE(has(error_of(Json::array()), "scheduler class ''"));
  EXPECT_TRUE(has(ddim({{"beta_schedule", "sigmoid"}}), "'beta_schedule': 'sigmoid'"));
  EXPECT_TRUE(has(ddim({{"thresholding", true}}), "'thresholding'"));
  EXPECT_TRUE(has(ddim({{"beta_start", 0}}), "'beta_start'"));
  EXPECT_TRUE(has(ddim({{"trained_betas", {0.1, 0.2}}}), "'trained_betas' must have"));
  EXPECT_TRUE(has(ddim({{"num_train_timesteps", 1}}), "'num_train_timesteps'"));
  EXPECT_TRUE(has(ddim({{"steps_offset", -1}}), "'steps_offset'"));
  EXPECT_TRUE(has(ddim({{"step_offset", 1}}), "did you mean 'steps_offset'"));
  const auto dpm = [](const Json& changes) {
    Json json = {{"_class_name", "DPMSolverMultistepScheduler"}};
    json.update(changes);
    return error_of(json);
  };
  EXPECT_TRUE(has(dpm({{"solver_order", 3}}), "'solver_order': 3 is not supported"));
  EXPECT_TRUE(has(dpm({{"algorithm_type", "dpmsolver"}}), "'algorithm_type': 'dpmsolver'"));
  EXPECT_TRUE(has(dpm({{"use_lu_lambdas", true}}), "'use_lu_lambdas'"));
  EXPECT_TRUE(has(dpm({{"variance_type", "learned"}}), "'variance_type'"));
}

TEST(SchedulerConfigTest, AnotherClassIsReadByTheKeysThatItShares) {
  const Json pndm = {{"_class_name", "PNDMScheduler"},
                     {"skip_prk_steps", true},
                     {"beta_schedule", "scaled_linear"},
                     {"steps_offset", 1}};
  const auto config = SchedulerConfig::parse_as(SchedulerKind::kDdpm, pndm, "x");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->kind, SchedulerKind::kDdpm);
  EXPECT_EQ(config->beta_schedule, BetaCurve::kScaledLinear);
  EXPECT_EQ(config->steps_offset, 1);
  // Its own class is read in full.
  const Json ddpm = {{"_class_name", "DDPMScheduler"}, {"skip_prk_steps", true}};
  EXPECT_FALSE(SchedulerConfig::parse_as(SchedulerKind::kDdpm, ddpm, "x"));
}

TEST(SchedulerConfigTest, WhatIsSavedIsRead) {
  const std::string folder = testing::TempDir() + "/schedulers";
  for (const SchedulerKind kind : kKinds) {
    SchedulerConfig config = config_of(kind);
    config.steps_offset = kind == SchedulerKind::kFlowMatchEuler ? 0 : 3;
    ASSERT_TRUE(save_scheduler(folder, config));
    const auto read = read_scheduler(folder);
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(read->kind, kind);
    EXPECT_EQ(read->to_json(), config.to_json());
  }
  std::filesystem::remove_all(folder);
  EXPECT_EQ(read_scheduler(folder).error().code, Code::kNotFound);
}

TEST(SchedulerConfigTest, PythonsInfinityIsRead) {
  const std::string folder = testing::TempDir() + "/infinite";
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/scheduler_config.json")
      << R"({"_class_name": "DPMSolverMultistepScheduler", "lambda_min_clipped": -Infinity})";
  const auto config = read_scheduler(folder);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->lambda_min_clipped, -std::numeric_limits<double>::infinity());
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace yard::models
