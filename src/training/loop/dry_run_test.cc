#include "loop/dry_run.h"

#include <ATen/ops/conv2d.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "loop/flop_counter.h"
#include "loop/testing/tiny_run.h"

namespace yard::loop {
namespace {

double flops_of(const std::function<void()>& body) {
  const FlopCounter counter;
  body();
  return counter.flops();
}

TEST(FlopCounterTest, ProductsConvolutionsAndAttentionCountForwardAndBackward) {
  const at::Tensor a = at::ones({3, 5, 7}), b = at::ones({7, 11}).requires_grad_();
  EXPECT_EQ(flops_of([&] { (void)at::matmul(a, b.detach()); }), 2.0 * 3 * 5 * 7 * 11);
  EXPECT_EQ(flops_of([&] { at::matmul(a, b).sum().backward(); }), 2 * 2.0 * 3 * 5 * 7 * 11)
      << "the input wants no gradient";
  const at::Tensor x = at::ones({2, 4, 9, 9}).requires_grad_();
  const at::Tensor w = at::ones({6, 4, 3, 3}).requires_grad_();
  const double convolution = 2.0 * 2 * 6 * 5 * 5 * 4 * 9;
  const auto convolve = [&] { return at::conv2d(x, w, {}, 2, 1); };
  EXPECT_EQ(flops_of([&] { (void)convolve(); }), convolution);
  EXPECT_EQ(flops_of([&] { convolve().sum().backward(); }), 3 * convolution);
  const at::Tensor q = at::ones({2, 3, 32, 8}), k = at::ones({2, 3, 16, 8});
  EXPECT_EQ(flops_of([&] { (void)at::scaled_dot_product_attention(q, k, k); }),
            2 * 2.0 * 2 * 3 * 32 * 16 * 8);
  EXPECT_EQ(flops_of([] {}), 0);
}

Result<RecipeCost> measure(const std::string& text, const std::vector<std::string>& overrides,
                           collective::Group& group) {
  YARD_ASSIGN(Recipe recipe, parse_recipe(text, "tiny.yaml", overrides));
  return measure_recipe(std::move(recipe), {.output_dir = "/nowhere/at/all"}, group);
}

TEST_F(TrainerTest, ADryRunMeasuresEveryStageAndWritesNothing) {
  auto group = collective::single_rank_group();
  const auto cost = measure(recipe_text(), {"stages.cached.micro_batch=auto"}, *group);
  ASSERT_TRUE(cost) << cost.error().message;
  EXPECT_EQ(cost->parts.size(), 3u);
  EXPECT_EQ(cost->parts[0].name, "autoencoder");
  ASSERT_EQ(cost->stages.size(), 3u);
  const StageCost& cached = cost->stages[1];
  EXPECT_EQ(cached.measured.micro_batch, 8);
  EXPECT_EQ(cached.trained_parameter_count,
            cost->parts[1].parameter_count + cost->parts[2].parameter_count);
  // Weights, gradients, two moments and the average, besides what alignment takes.
  EXPECT_GE(cached.state_bytes, 5u * 4 * static_cast<uint64_t>(cached.trained_parameter_count));
  for (const StageCost& stage : cost->stages) {
    EXPECT_GT(stage.peak_bytes, 0u);
    EXPECT_GT(stage.step_flops, 0);
    EXPECT_GT(stage.step_s, 0);
  }
  // Twice the side, half the samples: the UNet computes on four times the values for each.
  EXPECT_GT(cost->stages[2].step_flops, 1.5 * cached.step_flops);
  const std::string text = to_text(*cost, 10);
  EXPECT_PRED_FORMAT2(testing::IsSubstring, "stage 'online': 3 steps of 4 samples on 1 ranks",
                      text);
  EXPECT_PRED_FORMAT2(testing::IsSubstring, "at 10 an hour and rank", text);
  EXPECT_FALSE(std::filesystem::exists("/nowhere"));
}

TEST_F(TrainerTest, ADryRunRefusesWhatTrainingWould) {
  auto group = collective::single_rank_group();
  const auto cost = measure(recipe_text(), {"stages.cached.resolution=10"}, *group);
  ASSERT_FALSE(cost);
  EXPECT_PRED_FORMAT2(testing::IsSubstring, "8, 12 or 16 would fit", cost.error().message);
}

}  // namespace
}  // namespace yard::loop
