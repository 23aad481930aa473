// The parts of UNet2DConditionModel that only some configurations have, under training.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include "models/unet_2d_condition.h"

namespace yard::models {
namespace {

// Stable Diffusion XL's parts and, beside them, everything that a condition passes through.
Json rich_json() {
  return {{"block_out_channels", {8, 16, 16}},
          {"norm_num_groups", 4},
          {"layers_per_block", {1, 2, 1}},
          {"down_block_types", {"DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"}},
          {"up_block_types", {"CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"}},
          {"transformer_layers_per_block", {0, 1, 2}},
          {"cross_attention_dim", 12},
          {"encoder_hid_dim", 7},
          {"attention_head_dim", {2, 4, 8}},
          {"use_linear_projection", true},
          {"only_cross_attention", {false, true, false}},
          {"resnet_time_scale_shift", "scale_shift"},
          {"num_class_embeds", 3},
          {"class_embeddings_concat", true},
          {"time_cond_proj_dim", 5},
          {"time_embedding_dim", 24}};
}

at::Tensor ramp(at::IntArrayRef shape) {
  int64_t count = 1;
  for (const int64_t side : shape) count *= side;
  return (at::arange(count, at::kFloat) * 0.37).sin().view(shape);
}

UNet2DConditionModel make_rich() {
  return {*UNetConfig::parse(rich_json(), "unet"), 3};
}

at::Tensor run(const UNet2DConditionModel& model) {
  const UNetConditions conditions{.class_labels = at::arange(2, at::kLong) * 2,
                                  .text_embeds = {},
                                  .time_ids = {},
                                  .timestep_cond = ramp({2, 5}),
                                  .encoder_attention_mask = at::arange(10).view({2, 5}).ne(8)};
  return model.forward(ramp({2, 4, 7, 9}), at::arange(2, at::kLong) * 300, ramp({2, 5, 7}),
                       conditions);
}

void disturb(const std::vector<NamedTensor>& parameters) {
  for (const NamedTensor& p : parameters) p.tensor.add_(ramp(p.tensor.sizes()), 0.1);
}

TEST(UNetConditionsTest, GradientReachesEveryParameterWithSidesThatDoNotDivide) {
  const UNet2DConditionModel model = make_rich();
  disturb(model.parameters());
  set_requires_grad(model.parameters(), true);
  const at::Tensor out = run(model);
  EXPECT_EQ(out.sizes(), (std::vector<int64_t>{2, 4, 7, 9}));
  out.square().sum().backward();
  for (const NamedTensor& p : model.parameters()) {
    ASSERT_TRUE(p.tensor.grad().defined()) << p.name;
    EXPECT_GT(p.tensor.grad().abs().max().item<float>(), 0) << p.name;
  }
}

TEST(UNetConditionsTest, RecomputedActivationsGiveTheSameGradients) {
  UNet2DConditionModel kept = make_rich(), recomputed = make_rich();
  recomputed.set_activations(tensor::Activations::kRecomputed);
  for (const UNet2DConditionModel* model : {&kept, &recomputed}) {
    disturb(model->parameters());
    set_requires_grad(model->parameters(), true);
    run(*model).square().sum().backward();
  }
  for (size_t i = 0; i < kept.parameters().size(); ++i) {
    const NamedTensor& expected = kept.parameters()[i];
    const at::Tensor difference = recomputed.parameters()[i].tensor.grad() - expected.tensor.grad();
    EXPECT_LE(difference.norm().item<double>(), 1e-5 * expected.tensor.grad().norm().item<double>())
        << expected.name;
  }
}

TEST(UNetConditionsTest, ParametersAreMadeInTheOrderOfTheirUse) {
  const UNet2DConditionModel model = make_rich();
  const auto index = [&](std::string_view prefix) {
    for (size_t i = 0; i < model.parameters().size(); ++i)
      if (model.parameters()[i].name.starts_with(prefix)) return i;
    return model.parameters().size();
  };
  size_t before = 0;
  for (const char* prefix :
       {"conv_in", "time_embedding", "encoder_hid_proj", "class_embedding", "down_blocks.0",
        "down_blocks.2", "mid_block", "up_blocks.0", "up_blocks.2", "conv_norm_out", "conv_out"}) {
    EXPECT_LE(before, index(prefix)) << prefix;
    before = index(prefix);
  }
  EXPECT_LT(before, model.parameters().size());
}

TEST(UNetConditionsDeathTest, AConditionThatIsMissingIsABrokenContract) {
  const c10::NoGradGuard no_grad;
  const UNet2DConditionModel model = make_rich();
  EXPECT_DEATH(model.forward(ramp({1, 4, 8, 8}), at::arange(1, at::kLong), ramp({1, 5, 7})),
               "class_labels");
}

}  // namespace
}  // namespace yard::models
