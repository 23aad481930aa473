#include "loop/recipe.h"

#include <gtest/gtest.h>

namespace yard::loop {
namespace {

void expect_says(const std::string& message, std::string_view part) {
  EXPECT_PRED_FORMAT2(testing::IsSubstring, std::string(part), message);
}

constexpr std::string_view kRecipe = R"(name: birds
seed: 18446744073709551615
data:
  shards: birds
  held_out: 8
  cache: 64MiB
model:
  autoencoder: {block_out_channels: [8, 16, 16]}
  unet: {block_out_channels: [16, 32]}
  text_encoder: {hidden_size: 16}
  tokenizer: tok
stages:
  - {name: vae, train: autoencoder, resolution: 64, steps: 5, batch: 8, learning_rate: 1e-3}
  - name: low
    train: denoiser
    resolution: 32
    steps: 10
    batch: 12
    micro_batch: 3
    learning_rate: 5e-4
    schedule: cosine
)";

Result<Recipe> parsed(const std::vector<std::string>& overrides = {}) {
  return parse_recipe(kRecipe, "birds.yaml", overrides);
}

std::string with(std::string_view from, std::string_view to) {
  std::string text(kRecipe);
  text.replace(text.find(from), from.size(), to);
  return text;
}

std::string refusal(const std::string& yaml, const std::vector<std::string>& overrides = {}) {
  auto recipe = parse_recipe(yaml, "birds.yaml", overrides);
  if (recipe) return "accepted";
  EXPECT_EQ(recipe.error().code, Code::kInvalidArgument);
  return recipe.error().message;
}

TEST(RecipeTest, ReadsValuesAndKeepsDefaults) {
  auto recipe = parsed();
  ASSERT_TRUE(recipe) << recipe.error().message;
  EXPECT_EQ(recipe->seed, 18446744073709551615u);
  EXPECT_EQ(recipe->data.cache_bytes, 64u << 20);
  EXPECT_EQ(recipe->stages[0].train, Train::kAutoencoder);
  EXPECT_DOUBLE_EQ(recipe->stages[1].learning_rate, 5e-4);
  EXPECT_EQ(recipe->stages[1].schedule, LearningRateShape::kCosine);
  EXPECT_EQ(recipe->stages[1].micro_batch, 3);
  EXPECT_EQ(recipe->optimizer.beta2, 0.999);
  EXPECT_EQ(recipe->evaluation.samples, 8);
  EXPECT_EQ(recipe->step_count(), 15);
  EXPECT_EQ(recipe->steps_before(1), 5);
  EXPECT_EQ(recipe->model.unet->config["block_out_channels"], Json({16, 32}));
}

TEST(RecipeTest, OverridesNameStagesByIndexOrName) {
  auto recipe = parsed({"stages.0.steps=7", "stages.low.steps=9", "sampling.prompts=[a b, c]",
                        "optimizer.clip=0.5", "precision=bf16"});
  ASSERT_TRUE(recipe) << recipe.error().message;
  EXPECT_EQ(recipe->stages[0].steps, 7);
  EXPECT_EQ(recipe->stages[1].steps, 9);
  EXPECT_EQ(recipe->sampling.prompts, (std::vector<std::string>{"a b", "c"}));
  EXPECT_EQ(recipe->optimizer.clip, 0.5);
  EXPECT_EQ(recipe->precision, Precision::kBF16);
}

TEST(RecipeTest, OverridesThatNameNothingAreRefused) {
  expect_says(refusal(std::string(kRecipe), {"stages.medium.steps=9"}), "'medium'");
  expect_says(refusal(std::string(kRecipe), {"stages.7.steps=9"}), "'7'");
  expect_says(refusal(std::string(kRecipe), {"steps"}), "expected key=value");
  expect_says(refusal(std::string(kRecipe), {"seed.x=1"}), "'x'");
  expect_says(refusal(std::string(kRecipe), {"sed=1"}), "did you mean 'seed'?");
}

TEST(RecipeTest, UnknownKeysAreRefusedWithLineAndNearestKey) {
  EXPECT_EQ(refusal(with("micro_batch: 3", "mirco_batch: 3")),
            "birds.yaml:19: stages.1: unknown key 'mirco_batch', did you mean 'micro_batch'?");
  expect_says(refusal(with("seed:", "sede:")), "birds.yaml:2: unknown key 'sede'");
  expect_says(refusal(with("held_out: 8", "held_uot: 8")), "birds.yaml:5: data:");
  expect_says(refusal(with("tokenizer", "tokeniser")), "did you mean 'tokenizer'?");
}

TEST(RecipeTest, WrongTypesAndRangesAreRefusedWithTheirLine) {
  expect_says(refusal(with("steps: 10", "steps: ten")), "birds.yaml:17");
  expect_says(refusal(with("steps: 10", "steps: 0")), "'steps' is 0");
  expect_says(refusal(with("steps: 10", "steps: 1.5")), "a whole number");
  expect_says(refusal(with("batch: 12", "batch: -4")), "birds.yaml:18");
  expect_says(refusal(with("5e-4", ".nan")), "'learning_rate'");
  expect_says(refusal(with("64MiB", "many")), "'cache'");
  expect_says(refusal(with("cosine", "cosin")), "did you mean 'cosine'?");
  expect_says(refusal(with("name: low", "name: vae")), "two stages are called 'vae'");
  expect_says(refusal(with("name: low", "name: a/b")), "letters, digits");
}

TEST(RecipeTest, WhatIsNotARecipeIsRefused) {
  expect_says(refusal("a: [1, 2"), "birds.yaml:1");
  expect_says(refusal("seed: 1\nseed: 2\n"), "birds.yaml:2: key 'seed' is given twice");
  expect_says(refusal(""), "'shards' is missing");
  expect_says(refusal("[1, 2]"), "map of keys");
  std::string deep(100, '[');
  expect_says(refusal(deep + std::string(100, ']')), "too large");
  expect_says(refusal(R"(a: &a [1,1,1,1,1,1,1,1,1,1]
b: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]
c: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b,*b]
d: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c,*c]
e: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d,*d]
)"),
              "too large");
}

TEST(RecipeTest, HowTheModelIsSharedOutIsReadAndChecked) {
  const auto recipe = parsed({"parallel={mode: hybrid, shard_size: 2, bucket_bytes: 1MiB}"});
  ASSERT_TRUE(recipe) << recipe.error().message;
  EXPECT_EQ(recipe->parallel.mode, ParallelMode::kHybrid);
  EXPECT_EQ(recipe->parallel.shard_size, 2);
  EXPECT_EQ(recipe->parallel.bucket_bytes, 1u << 20);
  EXPECT_EQ(parsed()->parallel.mode, ParallelMode::kDdp);
  const auto expect = [](const std::string& value, std::string_view part) {
    expect_says(refusal(std::string(kRecipe), {"parallel=" + value}), part);
  };
  expect("{mode: zero4}", "did you mean 'zero");
  expect("{mod: zero3}", "did you mean 'mode'?");
  expect("{mode: hybrid}", "hybrid needs 'shard_size'");
  expect("{mode: zero3, shard_size: 2}", "'shard_size' is for mode hybrid");
  expect("{bucket_bytes: 7}", "'bucket_bytes' is 7");
  expect("{gathered_units: 1}", "'gathered_units' is 1");
  expect("{parameters: bf16}", "need precision: bf16");
  expect("{rounding: stochastic}", "for bf16 parameters");
}

TEST(RecipeTest, StagesHaveTheirOwnAverageScheduleAndFrozenParts) {
  const auto recipe = parsed({"ema={decay: 0.99, start_step: 3}", "stages.low.ema={decay: 0.5}",
                              "stages.low.freeze=[text_encoder.*]", "stages.low.micro_batch=auto",
                              "stages.low.schedule=polynomial", "stages.low.power=2",
                              "stages.low.final_learning_rate=1e-6"});
  ASSERT_TRUE(recipe) << recipe.error().message;
  EXPECT_EQ(recipe->stages[0].ema.decay, 0.99);
  EXPECT_EQ(recipe->stages[1].ema.decay, 0.5);
  EXPECT_EQ(recipe->stages[1].ema.start_step, 3) << "what a stage leaves out is the run's";
  EXPECT_EQ(recipe->stages[1].freeze, std::vector<std::string>{"text_encoder.*"});
  EXPECT_EQ(recipe->stages[1].micro_batch, StageRecipe::kAutoMicroBatch);
  EXPECT_EQ(recipe->stages[1].power, 2);
  const auto expect = [](const std::string& change, std::string_view part) {
    expect_says(refusal(std::string(kRecipe), {change}), part);
  };
  expect("stages.low.micro_batch=automatic", "'micro_batch'");
  expect("stages.low.power=2", "'power' is for schedule: polynomial");
  expect("stages.vae.final_learning_rate=1e-4", "a constant schedule");
  expect("stages.low.final_learning_rate=1", "'final_learning_rate' is 1");
  expect("stages.low.ema={dekay: 0.5}", "did you mean 'decay'?");
}

TEST(RecipeTest, LossesOptimizersAndGuardsAreReadAndChecked) {
  const auto recipe =
      parsed({"diffusion={prediction: v_prediction, zero_terminal_snr: true, p2_gamma: 1}",
              "optimizer={kind: sgd, momentum: 0.8, nesterov: true}", "guard.spike_factor=3"});
  ASSERT_TRUE(recipe) << recipe.error().message;
  EXPECT_EQ(recipe->diffusion.prediction, Prediction::kVelocity);
  EXPECT_TRUE(recipe->diffusion.zero_terminal_snr);
  EXPECT_EQ(recipe->optimizer.kind, OptimizerKind::kSgd);
  EXPECT_EQ(recipe->guard.spike_factor, 3);
  const auto expect = [](const std::string& change, std::string_view part) {
    expect_says(refusal(std::string(kRecipe), {change}), part);
  };
  expect("diffusion.zero_terminal_snr=true", "needs prediction: v_prediction or sample");
  expect("diffusion={prediction: flow_prediction, beta_start: 0.001}", "'beta_start' is not for");
  expect("diffusion.flow_shift=2", "'flow_shift' is for prediction: flow_prediction");
  expect("diffusion={min_snr_gamma: 5, p2_gamma: 1}", "either 'min_snr_gamma' or 'p2_gamma'");
  expect("diffusion.logit_mean=1", "'logit_mean' is for timestep_sampling: logit_normal");
  expect("optimizer.momentum=0.5", "'momentum' is for kind sgd");
  expect("optimizer={kind: sgd, beta1: 0.5}", "kind sgd has no 'beta1'");
  expect("optimizer={kind: sgd, momentum: 0, nesterov: true}", "needs a 'momentum'");
  expect("optimizer.kind=adamw8bi", "did you mean 'adamw8bit'?");
  expect("guard.spike_factor=0.5", "must be over 1");
}

TEST(RecipeTest, StagesMustFitTheModel) {
  expect_says(refusal(with("  unet: {block_out_channels: [16, 32]}\n", "")), "needs model.unet");
  expect_says(refusal(with("  tokenizer: tok\n", "")), "model.tokenizer");
  expect_says(refusal(with("train: autoencoder", "train: denoiser")), "never trained");
  expect_says(refusal(with("train: denoiser", "train: autoencoder\n    cache_latents: true")),
              "no latents to keep");
  expect_says(
      refusal(std::string(kRecipe), {"stages.low.cache_latents=true", "data.random_flip=true"}),
      "one latent per picture");
  expect_says(refusal(std::string(kRecipe), {"data.synthetic={samples: 4}"}), "unknown key");
}

TEST(RecipeTest, BatchesThatTheRanksCannotShareAreRefusedWithWhatFits) {
  auto recipe = parsed();
  ASSERT_TRUE(recipe);
  EXPECT_TRUE(fit_stages(*recipe, 2, {4, 2}));
  EXPECT_EQ(recipe->stages[0].micro_batch, 4);
  Status status = fit_stages(*recipe, 5, {4, 2});
  ASSERT_FALSE(status);
  expect_says(status.error().message, "5, 10 or 15 would fit");
  recipe->stages[0].micro_batch = StageRecipe::kAutoMicroBatch;
  recipe->stages[1].micro_batch = 40;
  ASSERT_TRUE(fit_stages(*recipe, 2, {4, 2}));
  EXPECT_EQ(recipe->stages[0].micro_batch, StageRecipe::kAutoMicroBatch) << "for later";
  EXPECT_EQ(recipe->stages[1].micro_batch, 6) << "a rank has no more samples";
}

TEST(RecipeTest, ResolutionsThatTheModelCannotHalveAreRefusedWithWhatFits) {
  auto recipe = parsed({"stages.low.resolution=36"});
  ASSERT_TRUE(recipe);
  const Status status = fit_stages(*recipe, 2, {4, 2});
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().message,
            "stage 'low': a resolution of 36 is not a multiple of 8 (autoencoder 4 x denoiser 2); "
            "32, 40 or 48 would fit");
}

TEST(RecipeTest, IdentityIgnoresWhatMayChangeOnResume) {
  const Json plain = parsed()->identity();
  EXPECT_EQ(parsed({"output=elsewhere", "checkpoint.keep=9", "stages.low.micro_batch=1",
                    "data.cache=1MiB", "threads=3", "stages.low.schedule=cosine",
                    "parallel={mode: zero3, offload: optimizer, activations: recomputed}"})
                ->identity(),
            plain);
  EXPECT_EQ(parsed({"guard={skip_steps: 9, spike_factor: 2}", "evaluation.buckets=2",
                    "stages.low.micro_batch=auto", "sampling.guidance_rescale=0.5"})
                ->identity(),
            plain);
  for (const char* change :
       {"diffusion.noise_offset=0.1", "diffusion.p2_gamma=1", "optimizer.kind=adamw8bit",
        "ema.update_every=2", "stages.low.freeze=[unet.a]", "stages.low.ema={decay: 0.5}",
        "stages.low.final_learning_rate=1e-6", "diffusion.timestep_sampling=logit_normal"})
    EXPECT_NE(parsed({change})->identity(), plain) << change;
  EXPECT_NE(parsed({"seed=1"})->identity(), plain);
  EXPECT_NE(parsed({"precision=bf16", "parallel={parameters: bf16}"})->identity(),
            parsed({"precision=bf16"})->identity());
  EXPECT_NE(parsed({"stages.low.learning_rate=1e-5"})->identity(), plain);
  EXPECT_NE(parsed({"model.unet.block_out_channels=[16, 16]"})->identity(), plain);
}

}  // namespace
}  // namespace yard::loop
