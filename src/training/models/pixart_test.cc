// How PixArtTransformer2DModel behaves under training and what its configuration refuses; that it
// computes what diffusers computes is tested in tests/conformance/test_models.py.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include "models/pixart_transformer_2d.h"

namespace yard::models {
namespace {

Json pixart_json(const Json& changes = Json::object()) {
  Json json = {{"num_attention_heads", 3}, {"attention_head_dim", 8},
               {"num_layers", 2},          {"sample_size", 8},
               {"caption_channels", 10},   {"cross_attention_dim", 24},
               {"out_channels", 4},        {"use_additional_conditions", true}};
  json.update(changes);
  return json;
}

at::Tensor ramp(at::IntArrayRef shape) {
  int64_t count = 1;
  for (const int64_t side : shape) count *= side;
  return (at::arange(count, at::kFloat) * 0.37).sin().view(shape);
}

PixArtTransformer2DModel make_pixart() {
  return {*PixArtConfig::parse(pixart_json(), "pixart"), 3};
}

at::Tensor run(const PixArtTransformer2DModel& model) {
  const PixArtConditions conditions{.resolution = ramp({2, 2}),
                                    .aspect_ratio = ramp({2, 1}),
                                    .encoder_attention_mask = at::arange(10).view({2, 5}).ne(9)};
  return model.forward(ramp({2, 4, 8, 6}), ramp({2, 5, 10}), at::arange(2, at::kLong) * 300,
                       conditions);
}

void disturb(const std::vector<NamedTensor>& parameters) {
  for (const NamedTensor& p : parameters) p.tensor.add_(ramp(p.tensor.sizes()), 0.1);
}

TEST(PixArtTest, GradientReachesEveryParameter) {
  const PixArtTransformer2DModel model = make_pixart();
  disturb(model.parameters());
  set_requires_grad(model.parameters(), true);
  run(model).square().sum().backward();
  for (const NamedTensor& p : model.parameters()) {
    ASSERT_TRUE(p.tensor.grad().defined()) << p.name;
    if (p.name.ends_with("to_k.bias")) continue;  // moves every score of a row alike
    EXPECT_GT(p.tensor.grad().abs().max().item<float>(), 0) << p.name;
  }
}

TEST(PixArtTest, RecomputedActivationsGiveTheSameGradientsBitForBit) {
  PixArtTransformer2DModel kept = make_pixart(), recomputed = make_pixart();
  recomputed.set_activations(tensor::Activations::kRecomputed);
  for (const PixArtTransformer2DModel* model : {&kept, &recomputed}) {
    disturb(model->parameters());
    set_requires_grad(model->parameters(), true);
    run(*model).square().sum().backward();
  }
  for (size_t i = 0; i < kept.parameters().size(); ++i)
    EXPECT_TRUE(recomputed.parameters()[i].tensor.grad().equal(kept.parameters()[i].tensor.grad()))
        << kept.parameters()[i].name;
}

TEST(PixArtTest, ANewModelGivesNothingYet) {
  const c10::NoGradGuard no_grad;
  EXPECT_EQ(run(make_pixart()).abs().max().item<float>(), 0);
}

TEST(PixArtTest, ParametersMadeLaterStartWithTheSameValues) {
  const PixArtTransformer2DModel at_once = make_pixart();
  const PixArtTransformer2DModel later(at_once.config(), WeightStart::later(3));
  for (size_t i = 0; i < later.parameters().size(); ++i) {
    at::Tensor value = at::zeros(later.parameters()[i].tensor.sizes());
    later.parameter_list().start(i, value);
    EXPECT_TRUE(value.equal(at_once.parameters()[i].tensor)) << later.parameters()[i].name;
  }
}

TEST(PixArtTest, AHiddenTokenOfTheCaptionChangesNothing) {
  const c10::NoGradGuard no_grad;
  const PixArtTransformer2DModel model = make_pixart();
  disturb(model.parameters());
  const PixArtConditions conditions{.resolution = ramp({1, 2}),
                                    .aspect_ratio = ramp({1, 1}),
                                    .encoder_attention_mask = at::arange(3).view({1, 3}).ne(1)};
  const auto with_caption = [&](const at::Tensor& caption) {
    return model.forward(ramp({1, 4, 4, 4}), caption, at::arange(1, at::kLong), conditions);
  };
  at::Tensor caption = ramp({1, 3, 10});
  const at::Tensor before = with_caption(caption);
  caption = caption.clone();
  caption.select(1, 1).fill_(50);
  EXPECT_TRUE(with_caption(caption).equal(before));
  caption.select(1, 2).fill_(5);
  EXPECT_FALSE(with_caption(caption).equal(before));
}

TEST(PixArtTest, DefaultsAreThoseOfDiffusers) {
  const auto config = PixArtConfig::parse(Json::object(), "x");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->width(), 1152);
  EXPECT_EQ(config->out_channels, 8);
  EXPECT_EQ(config->interpolation_scale, 2);
  EXPECT_TRUE(config->use_additional_conditions);
  const auto small = PixArtConfig::parse({{"sample_size", 32}, {"out_channels", nullptr}}, "x");
  ASSERT_TRUE(small) << small.error().message;
  EXPECT_EQ(small->out_channels, 4);
  EXPECT_EQ(small->interpolation_scale, 1);
  EXPECT_FALSE(small->use_additional_conditions);
}

TEST(PixArtTest, ConfigsThatWeCannotBuildAreRefusedByKeyAndValue) {
  const std::vector<std::pair<Json, std::string>> cases = {
      {{{"norm_type", "ada_norm_zero"}}, "'norm_type': \"ada_norm_zero\" is not supported"},
      {{{"activation_fn", "relu"}}, "'activation_fn': 'relu' is not supported"},
      {{{"cross_attention_dim", nullptr}}, "'cross_attention_dim' must be"},
      {{{"cross_attention_dim", 23}}, "with 'caption_channels'"},
      {{{"attention_head_dim", 7}}, "must be a multiple of 4"},
      {{{"num_attention_heads", 2}, {"cross_attention_dim", 16}}, "must be a multiple of 3"},
      {{{"num_layers", 1000}}, "'num_layers' must be at most 256"},
      {{{"patch_size", 9}}, "'patch_size' must be at most"},
      {{{"interpolation_scale", -1}}, "'interpolation_scale' must be above 0"},
      {{{"dropout", 0.1}}, "'dropout'"},
      {{{"caption_chanels", 4}}, "did you mean 'caption_channels'"},
  };
  for (const auto& [changes, why] : cases) {
    const auto config = PixArtConfig::parse(pixart_json(changes), "x/config.json");
    ASSERT_FALSE(config) << changes;
    EXPECT_EQ(config.error().code, Code::kInvalidArgument);
    EXPECT_TRUE(config.error().message.starts_with("x/config.json: ")) << config.error().message;
    EXPECT_NE(config.error().message.find(why), std::string::npos) << config.error().message;
  }
}

TEST(SincosPositionsTest, ColumnsComeBeforeRows) {
  const at::Tensor positions = sincos_positions(2, 3, 8, 2, 1);
  ASSERT_EQ(positions.sizes(), (std::vector<int64_t>{1, 6, 8}));
  // Row 1, column 0: the column's sines are 0, the row's are not.
  EXPECT_EQ(positions[0][3][0].item<float>(), 0);
  EXPECT_NEAR(positions[0][3][4].item<float>(), std::sin(1.0), 1e-6);
  // Column 2 of 3, where a side of 2 is the base: at 2 / 1.5.
  EXPECT_NEAR(positions[0][2][0].item<float>(), std::sin(2 / 1.5), 1e-6);
}

}  // namespace
}  // namespace yard::models
