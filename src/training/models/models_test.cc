// What the configs refuse, and how the models behave under training; that they compute what the
// reference packages compute is tested in tests/conformance/test_models.py.
#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include "models/autoencoder_kl.h"
#include "models/clip_text.h"
#include "models/unet_2d_condition.h"
#include "tensor/autocast.h"

namespace yard::models {
namespace {

Json unet_json() {
  return {{"block_out_channels", {8, 16}},
          {"norm_num_groups", 4},
          {"layers_per_block", 1},
          {"down_block_types", {"DownBlock2D", "CrossAttnDownBlock2D"}},
          {"up_block_types", {"CrossAttnUpBlock2D", "UpBlock2D"}},
          {"cross_attention_dim", 12},
          {"attention_head_dim", 4}};
}

at::Tensor ramp(at::IntArrayRef shape) {
  int64_t count = 1;
  for (const int64_t side : shape) count *= side;
  return (at::arange(count, at::kFloat) * 0.37).sin().view(shape);
}

UNet2DConditionModel make_unet(Json changes = Json::object()) {
  Json json = unet_json();
  json.update(changes);
  return {*UNetConfig::parse(json, "unet"), 3};
}
at::Tensor run(const UNet2DConditionModel& model, const at::Tensor& sample) {
  return model.forward(sample, at::arange(2, at::kLong) * 300, ramp({2, 5, 12}));
}

// Away from the start, where the last layer of a branch is zero and hides what is before it.
void disturb(const std::vector<NamedTensor>& parameters) {
  for (const NamedTensor& p : parameters) p.tensor.add_(ramp(p.tensor.sizes()), 0.1);
}

void expect_gradient_everywhere(const std::vector<NamedTensor>& parameters) {
  for (const NamedTensor& p : parameters) {
    ASSERT_TRUE(p.tensor.grad().defined()) << p.name;
    // A key's bias moves every score of a row alike: softmax does not see it.
    if (p.name.ends_with("k_proj.bias") || p.name.ends_with("to_k.bias")) continue;
    EXPECT_GT(p.tensor.grad().abs().max().item<float>(), 0) << p.name;
  }
}

void expect_same_gradients(const std::vector<NamedTensor>& got,
                           const std::vector<NamedTensor>& expected) {
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_TRUE(got[i].tensor.grad().equal(expected[i].tensor.grad())) << expected[i].name;
  }
}

template <typename Model, typename Config>
void expect_recomputing_changes_no_gradient(const Config& config,
                                            void (*backward)(const Model& model)) {
  Model kept(config, 3), recomputed(config, 3);
  recomputed.set_activations(tensor::Activations::kRecomputed);
  backward(kept);
  backward(recomputed);
  expect_gradient_everywhere(kept.parameters());
  expect_same_gradients(recomputed.parameters(), kept.parameters());
}

TEST(UNetTest, GradientReachesEveryParameter) {
  const UNet2DConditionModel model =
      make_unet({{"use_linear_projection", true}, {"transformer_layers_per_block", 2}});
  disturb(model.parameters());
  set_requires_grad(model.parameters(), true);
  run(model, ramp({2, 4, 8, 8})).square().sum().backward();
  expect_gradient_everywhere(model.parameters());
}

TEST(UNetTest, RecomputedActivationsGiveTheSameGradients) {
  UNet2DConditionModel kept = make_unet(), recomputed = make_unet();
  recomputed.set_activations(tensor::Activations::kRecomputed);
  for (const UNet2DConditionModel* model : {&kept, &recomputed}) {
    disturb(model->parameters());
    set_requires_grad(model->parameters(), true);
    run(*model, ramp({2, 4, 8, 8})).square().sum().backward();
  }
  expect_same_gradients(recomputed.parameters(), kept.parameters());
}

template <typename Model, typename Config>
void expect_same_start_later(const Model& at_once, const Config& config) {
  const Model later(config, WeightStart::later(3));
  for (size_t i = 0; i < later.parameters().size(); ++i) {
    const at::Tensor& unset = later.parameters()[i].tensor;
    EXPECT_EQ(unset.storage().data(), nullptr);
    at::Tensor value = at::zeros(unset.sizes());
    later.parameter_list().start(i, value);
    EXPECT_TRUE(value.equal(at_once.parameters()[i].tensor)) << later.parameters()[i].name;
  }
}

TEST(UNetTest, ParametersMadeLaterStartWithTheSameValues) {
  const UNet2DConditionModel at_once = make_unet();
  expect_same_start_later(at_once, at_once.config());
}

TEST(UNetTest, ChannelsLastComputesTheSameAndStays) {
  const c10::NoGradGuard no_grad;
  const UNet2DConditionModel model = make_unet();
  disturb(model.parameters());
  const at::Tensor sample = ramp({2, 4, 8, 8});
  const at::Tensor expected = run(model, sample);
  const at::Tensor got = run(model, sample.contiguous(at::MemoryFormat::ChannelsLast));
  EXPECT_TRUE(got.is_contiguous(at::MemoryFormat::ChannelsLast));
  EXPECT_TRUE(at::allclose(got, expected, 1e-4, 1e-5));
}

TEST(UNetTest, InputsAreLeftAsTheyWere) {
  const c10::NoGradGuard no_grad;
  const UNet2DConditionModel model = make_unet();
  disturb(model.parameters());
  const at::Tensor sample = ramp({2, 4, 8, 8});
  const at::Tensor before = sample.clone();
  const at::Tensor first = run(model, sample);
  EXPECT_TRUE(sample.equal(before));
  EXPECT_TRUE(run(model, sample).equal(first));
}

TEST(UNetTest, MixedPrecisionStaysNearAndGivesF32Gradients) {
  const UNet2DConditionModel model = make_unet();
  disturb(model.parameters());
  const at::Tensor sample = ramp({2, 4, 8, 8});
  const at::Tensor expected = run(model, sample);
  set_requires_grad(model.parameters(), true);
  at::Tensor got;
  {
    const tensor::Autocast autocast(c10::DeviceType::CPU, true);
    got = run(model, sample).to(at::kFloat);
  }
  const float error = ((got - expected).abs().max() / expected.abs().max()).item<float>();
  EXPECT_LT(error, 0.05);
  EXPECT_GT(error, 1e-5) << "nothing was computed in bf16";
  got.square().sum().backward();
  expect_gradient_everywhere(model.parameters());
  EXPECT_EQ(model.parameters()[0].tensor.grad().scalar_type(), at::kFloat);
}

TEST(UNetTest, ConfigsThatWeCannotBuildAreRefusedByKeyAndValue) {
  const std::vector<std::pair<Json, std::string>> cases = {
      {{{"class_embed_type", "timesteps"}},
       "'class_embed_type': 'timesteps' is not supported, did you mean 'timestep'"},
      {{{"class_embed_type", "projection"}}, "'projection_class_embeddings_input_dim' is missing"},
      {{{"class_embeddings_concat", true}}, "'class_embeddings_concat' needs a class embedding"},
      {{{"addition_embed_type", "text_image"}}, "'addition_embed_type': 'text_image' is not"},
      {{{"addition_embed_type", "text_time"}, {"projection_class_embeddings_input_dim", 9}},
       "'addition_time_embed_dim' must be even"},
      {{{"encoder_hid_dim_type", "image_proj"}}, "'encoder_hid_dim_type': 'image_proj' is not"},
      {{{"encoder_hid_dim_type", "text_proj"}}, "'encoder_hid_dim' is missing"},
      {{{"resnet_time_scale_shift", "spatial"}}, "'resnet_time_scale_shift': 'spatial' is not"},
      {{{"mid_block_type", "UNetMidBlock2DSimpleCrossAttn"}}, "'mid_block_type'"},
      {{{"mid_block_scale_factor", 0}}, "'mid_block_scale_factor' must not be 0"},
      {{{"conv_in_kernel", 2}}, "'conv_in_kernel' must be odd"},
      {{{"only_cross_attention", {true}}}, "'only_cross_attention' must be"},
      {{{"cross_attention_dim", {12, nullptr}}}, "'cross_attention_dim' must be"},
      {{{"transformer_layers_per_block", {1, {1, 2}}}}, "'reverse_transformer_layers_per_block'"},
      {{{"transformer_layers_per_block", {1, {1, 2}}},
        {"reverse_transformer_layers_per_block", {1, 1}}},
       "one for each of its layers (here 1)"},
      {{{"transformer_layers_per_block", {1, 65}}}, "whole numbers from 0 to 64"},
      {{{"transformer_layers_per_block", {1}}}, "as many entries as blocks"},
      {{{"attention_type", "gated"}}, "'attention_type'"},
      {{{"norm_num_groups", nullptr}}, "'norm_num_groups' must be"},
      {{{"act_fn", "gelu"}}, "'act_fn'"},
      {{{"center_input_sample", 1}}, "'center_input_sample' must be"},
      {{{"block_out_channels", {8, 18}}}, "18 is not a multiple of 'norm_num_groups', 4"},
      {{{"block_out_channels", {8, 16, 16}}}, "'down_block_types' must have as many entries"},
      {{{"block_out_channels", {8, 0}}}, "'block_out_channels' must be"},
      {{{"block_out_channels", {8, 1e30}}}, "'block_out_channels' must be"},
      {{{"block_out_channels", {1, 4}}, {"norm_num_groups", 1}}, "the first must be even"},
      {{{"attention_head_dim", 5}}, "16 channels do not divide into 5 heads"},
      {{{"attention_head_dim", {4, 4, 4}}}, "'attention_head_dim' must be"},
      {{{"down_block_types", {"DownBlock2D"}}}, "must have as many entries"},
      {{{"down_block_types", {"DownBlock2D", "AttnDownBlock2D"}}},
       "'AttnDownBlock2D' is not supported, did you mean 'DownBlock2D'"},
      {{{"down_block_types", Json::array()}, {"block_out_channels", Json::array()}},
       "must name 1 to 8 blocks"},
      {{{"layers_per_block", 65}}, "must be at most 64"},
      {{{"layers_per_block", -1}}, "'layers_per_block' must be"},
      {{{"downsample_padding", 2}}, "'downsample_padding' must be 0 or 1"},
      {{{"in_channels", "4"}}, "'in_channels' must be"},
      {{{"cross_attention_dims", 4}}, "did you mean 'cross_attention_dim'"},
  };
  for (const auto& [changes, why] : cases) {
    Json json = unet_json();
    json.update(changes);
    const auto config = UNetConfig::parse(json, "x/config.json");
    ASSERT_FALSE(config) << changes;
    EXPECT_EQ(config.error().code, Code::kInvalidArgument);
    EXPECT_TRUE(config.error().message.starts_with("x/config.json: ")) << config.error().message;
    EXPECT_NE(config.error().message.find(why), std::string::npos) << config.error().message;
  }
  EXPECT_FALSE(UNetConfig::parse(Json::array(), "x"));
}

TEST(UNetTest, DefaultsAreThoseOfDiffusers) {
  const auto config = UNetConfig::parse(Json::object(), "x");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->block_out_channels, (std::vector<int64_t>{320, 640, 1280, 1280}));
  EXPECT_EQ(config->up_block_types[0], "UpBlock2D");
  EXPECT_EQ(config->head_counts, (std::vector<int64_t>{8, 8, 8, 8}));
  EXPECT_EQ(config->downscale(), 8);
}

Json autoencoder_json() {
  return {{"block_out_channels", {8, 16}}, {"norm_num_groups", 4}, {"latent_channels", 3}};
}

void backward(const AutoencoderKL& model) {
  disturb(model.parameters());
  set_requires_grad(model.parameters(), true);
  const LatentDistribution latents = model.encode(ramp({2, 3, 8, 8}));
  (model.decode(latents.mean).square().sum() + latents.logvar.square().sum()).backward();
}

TEST(AutoencoderTest, GradientReachesEveryParameterAlsoThroughRecomputedActivations) {
  expect_recomputing_changes_no_gradient<AutoencoderKL>(
      *AutoencoderConfig::parse(autoencoder_json(), "vae"), backward);
}

TEST(AutoencoderTest, ParametersMadeLaterStartWithTheSameValues) {
  const AutoencoderConfig config = *AutoencoderConfig::parse(autoencoder_json(), "vae");
  expect_same_start_later(AutoencoderKL(config, 3), config);
}

TEST(AutoencoderTest, ChannelsLastComputesTheSameAndStays) {
  const c10::NoGradGuard no_grad;
  const AutoencoderKL model(*AutoencoderConfig::parse(autoencoder_json(), "vae"), 3);
  const at::Tensor picture = ramp({2, 3, 8, 8});
  const at::Tensor last = picture.contiguous(at::MemoryFormat::ChannelsLast);
  EXPECT_TRUE(at::allclose(model.encode(last).mean, model.encode(picture).mean, 1e-4, 1e-5));
  const at::Tensor latents = ramp({2, 3, 4, 4});
  const at::Tensor got = model.decode(latents.contiguous(at::MemoryFormat::ChannelsLast));
  EXPECT_TRUE(got.is_contiguous(at::MemoryFormat::ChannelsLast));
  EXPECT_TRUE(at::allclose(got, model.decode(latents), 1e-4, 1e-5));
}

TEST(AutoencoderTest, APictureOfOneTileIsNotCut) {
  const c10::NoGradGuard no_grad;
  const AutoencoderKL model(*AutoencoderConfig::parse(autoencoder_json(), "vae"), 3);
  AutoencoderTiling tiling(model.config());
  tiling.sample_side_min = 16;
  tiling.latent_side_min = 8;
  const at::Tensor picture = ramp({1, 3, 16, 12});
  EXPECT_TRUE(model.encode(picture, tiling).mean.equal(model.encode(picture).mean));
  const at::Tensor latents = ramp({1, 3, 8, 6});
  EXPECT_TRUE(model.decode(latents, tiling).equal(model.decode(latents)));
}

TEST(AutoencoderTest, TilesWithoutOverlapAreEachDecodedAlone) {
  const c10::NoGradGuard no_grad;
  const AutoencoderKL model(*AutoencoderConfig::parse(autoencoder_json(), "vae"), 3);
  AutoencoderTiling tiling(model.config());
  tiling.sample_side_min = 8;
  tiling.latent_side_min = 4;
  tiling.overlap_factor = 0;
  const at::Tensor latents = ramp({1, 3, 4, 7});
  const at::Tensor whole = model.decode(latents, tiling);
  EXPECT_EQ(whole.sizes(), (std::vector<int64_t>{1, 3, 8, 14}));
  EXPECT_TRUE(whole.narrow(3, 0, 8).equal(model.decode(latents.narrow(3, 0, 4))));
  EXPECT_TRUE(whole.narrow(3, 8, 6).equal(model.decode(latents.narrow(3, 4, 3))));
}

TEST(AutoencoderTest, DenoiserLatentsComeBack) {
  Json json = autoencoder_json();
  json.update({{"shift_factor", 0.25},
               {"scaling_factor", 2},
               {"latents_mean", {1, 2, 3}},
               {"latents_std", {1, 2, 4}}});
  const AutoencoderConfig config = *AutoencoderConfig::parse(json, "vae");
  const at::Tensor latents = ramp({2, 3, 4, 4});
  const at::Tensor scaled = to_denoiser(config, latents);
  EXPECT_TRUE(at::allclose(scaled.select(1, 2), ((latents.select(1, 2) - 3) / 4 - 0.25) * 2));
  EXPECT_TRUE(at::allclose(from_denoiser(config, scaled), latents, 1e-5, 1e-6));
}

TEST(AutoencoderTest, LogVarianceIsClamped) {
  const c10::NoGradGuard no_grad;
  const AutoencoderKL model(*AutoencoderConfig::parse(autoencoder_json(), "vae"), 3);
  for (const NamedTensor& p : model.parameters()) {
    if (p.name == "quant_conv.bias") p.tensor.copy_(at::arange(6, at::kFloat) * 100 - 350);
  }
  const at::Tensor logvar = model.encode(ramp({1, 3, 4, 4})).logvar;
  EXPECT_EQ(logvar.select(1, 0).min().item<float>(), -30);  // bias -50
  EXPECT_EQ(logvar.select(1, 2).max().item<float>(), 20);   // bias 150
}

TEST(AutoencoderTest, ConfigsThatWeCannotBuildAreRefused) {
  const std::vector<std::pair<Json, std::string>> cases = {
      {{{"down_block_types", {"DownEncoderBlock2D", "AttnDownEncoderBlock2D"}}},
       "AttnDownEncoderBlock2D"},
      {{{"up_block_types", {"UpDecoderBlock2D"}}}, "as many entries"},
      {{{"block_out_channels", {8, 18}}}, "18 is not a multiple"},
      {{{"block_out_channels", Json::array()}}, "1 to 8 blocks"},
      {{{"use_quant_conv", 0}}, "'use_quant_conv' must be"},
      {{{"shift_factor", "0.1"}}, "'shift_factor' must be"},
      {{{"scaling_factor", 0}}, "'scaling_factor' must not be 0"},
      {{{"latents_mean", {0, 1, 2}}}, "'latents_mean' and 'latents_std' must both have"},
      {{{"latents_mean", {0, 1}}, {"latents_std", {1, 1}}}, "'latent_channels' entries"},
      {{{"sample_size", {8, 8, 8}}}, "'sample_size' must be"},
      {{{"latent_channel", 4}}, "did you mean 'latent_channels'"},
      {{{"layers_per_block", 1000}}, "'layers_per_block'"},
  };
  for (const auto& [changes, why] : cases) {
    Json json = autoencoder_json();
    json.update(changes);
    const auto config = AutoencoderConfig::parse(json, "x");
    ASSERT_FALSE(config) << changes;
    EXPECT_NE(config.error().message.find(why), std::string::npos) << config.error().message;
  }
}

Json clip_json() {
  return {{"vocab_size", 40},       {"hidden_size", 16},        {"intermediate_size", 32},
          {"num_hidden_layers", 2}, {"num_attention_heads", 2}, {"max_position_embeddings", 6},
          {"eos_token_id", 39}};
}

void backward(const ClipTextModel& model) {
  disturb(model.parameters());
  set_requires_grad(model.parameters(), true);
  const ClipTextOutput out = model.forward(at::arange(12, at::kLong).view({2, 6}));
  (out.last_hidden_state * ramp({2, 6, 16})).sum().backward();
}

TEST(ClipTextTest, GradientReachesEveryParameterAlsoThroughRecomputedActivations) {
  expect_recomputing_changes_no_gradient<ClipTextModel>(*ClipTextConfig::parse(clip_json(), "clip"),
                                                        backward);
}

TEST(ClipTextTest, ParametersMadeLaterStartWithTheSameValues) {
  const ClipTextConfig config = *ClipTextConfig::parse(clip_json(), "clip");
  expect_same_start_later(ClipTextModel(config, 3), config);
}

TEST(ClipTextTest, LaterTokensDoNotChangeEarlierOnes) {
  const c10::NoGradGuard no_grad;
  const ClipTextModel model(*ClipTextConfig::parse(clip_json(), "clip"), 3);
  at::Tensor ids = at::arange(6, at::kLong).view({1, 6});
  const at::Tensor before = model.forward(ids).last_hidden_state;
  ids = ids.clone();
  ids.select(1, 4).fill_(30);
  const at::Tensor after = model.forward(ids).last_hidden_state;
  EXPECT_TRUE(at::allclose(after.narrow(1, 0, 4), before.narrow(1, 0, 4), 1e-6, 1e-7));
  EXPECT_FALSE(at::allclose(after.narrow(1, 4, 2), before.narrow(1, 4, 2)));
}

TEST(ClipTextTest, PooledIsTheFirstEndOfText) {
  const c10::NoGradGuard no_grad;
  const ClipTextModel model(*ClipTextConfig::parse(clip_json(), "clip"), 3);
  at::Tensor ids = at::zeros({1, 6}, at::kLong);
  ids.narrow(1, 3, 3).fill_(39);
  const ClipTextOutput out = model.forward(ids);
  EXPECT_TRUE(out.pooler_output[0].equal(out.last_hidden_state[0][3]));
}

TEST(ClipTextTest, WithTheOldIdTheLargestTokenIsTheEnd) {
  const c10::NoGradGuard no_grad;
  Json json = clip_json();
  json["eos_token_id"] = 2;
  const ClipTextModel model(*ClipTextConfig::parse(json, "clip"), 3);
  at::Tensor ids = at::zeros({1, 6}, at::kLong);
  ids.select(1, 1).fill_(2);
  ids.select(1, 4).fill_(39);
  const ClipTextOutput out = model.forward(ids);
  EXPECT_TRUE(out.pooler_output[0].equal(out.last_hidden_state[0][4]));
}

TEST(ClipTextTest, OnlyTheClassWithAProjectionHasOne) {
  const c10::NoGradGuard no_grad;
  Json json = clip_json();
  json["projection_dim"] = 5;
  const at::Tensor ids = at::arange(6, at::kLong).view({1, 6});
  const ClipTextModel plain(*ClipTextConfig::parse(json, "clip"), 3);
  EXPECT_FALSE(plain.forward(ids).text_embeds.defined());
  json["architectures"] = {"CLIPTextModelWithProjection"};
  const ClipTextModel projected(*ClipTextConfig::parse(json, "clip"), 3);
  EXPECT_EQ(projected.parameters().back().name, "text_projection.weight");
  EXPECT_EQ(projected.forward(ids).text_embeds.sizes(), (std::vector<int64_t>{1, 5}));
}

TEST(ClipTextTest, TheStateBeforeTheLastLayerIsThePenultimate) {
  const c10::NoGradGuard no_grad;
  Json json = clip_json();
  const ClipTextModel two(*ClipTextConfig::parse(json, "clip"), 3);
  const at::Tensor ids = at::arange(6, at::kLong).view({1, 6});
  const ClipTextOutput out = two.forward(ids);
  ASSERT_EQ(out.hidden_states.size(), 3U);
  EXPECT_TRUE(out.penultimate_hidden_state().equal(out.hidden_states[1]));
  EXPECT_FALSE(out.hidden_states[2].equal(out.last_hidden_state)) << "the final norm is missing";
}

TEST(ClipTextTest, ConfigsThatWeCannotBuildAreRefused) {
  const std::vector<std::pair<Json, std::string>> cases = {
      {{{"hidden_act", "relu"}}, "relu"},
      {{{"hidden_size", 15}}, "not a multiple of 'num_attention_heads'"},
      {{{"vocab_size", -1}}, "'vocab_size' must be"},
      {{{"num_hidden_layers", 1000}}, "'num_hidden_layers'"},
      {{{"attention_dropout", 0.1}}, "'attention_dropout'"},
      {{{"hiden_size", 16}}, "did you mean 'hidden_size'"},
  };
  for (const auto& [changes, why] : cases) {
    Json json = clip_json();
    json.update(changes);
    const auto config = ClipTextConfig::parse(json, "x");
    ASSERT_FALSE(config) << changes;
    EXPECT_NE(config.error().message.find(why), std::string::npos) << config.error().message;
  }
}

}  // namespace
}  // namespace yard::models
