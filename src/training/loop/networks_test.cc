#include "loop/networks.h"

#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "models/model_folder.h"

namespace yard::loop {
namespace {

const Json kUNet = {{"block_out_channels", {8, 16}},
                    {"norm_num_groups", 4},
                    {"layers_per_block", 1},
                    {"down_block_types", {"DownBlock2D", "CrossAttnDownBlock2D"}},
                    {"up_block_types", {"CrossAttnUpBlock2D", "UpBlock2D"}},
                    {"cross_attention_dim", 12}};
const Json kAutoencoder = {{"block_out_channels", {8, 16}}, {"norm_num_groups", 4}};
const Json kText = {{"vocab_size", 40},       {"hidden_size", 16},        {"intermediate_size", 32},
                    {"num_hidden_layers", 1}, {"num_attention_heads", 2}, {"eos_token_id", 39}};

Json with(Json json, const Json& changes) {
  json.update(changes);
  return json;
}

std::string error_of(const ModelRecipe& model) {
  const Recipe recipe{.model = model};
  const auto networks = Networks::create(recipe, nullptr);
  if (networks) return {};
  EXPECT_EQ(networks.error().code, Code::kInvalidArgument);
  return networks.error().message;
}

ModelRecipe unet_of(const Json& changes) {
  return {.unet = ModelPart{.from = "", .config = with(kUNet, changes)}};
}

bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

TEST(NetworksTest, ADenoiserThatWantsMoreThanCaptionsIsRefused) {
  EXPECT_EQ(error_of(unet_of(Json::object())), "");
  EXPECT_TRUE(has(error_of(unet_of({{"num_class_embeds", 3}})), "it wants class labels"));
}

// Stable Diffusion XL's: 6 sizes of 4 values each leave 16 of 40 for a caption's state.
ModelRecipe xl_of(int64_t text_width, int64_t projection) {
  ModelRecipe recipe = unet_of({{"addition_embed_type", "text_time"},
                                {"addition_time_embed_dim", 4},
                                {"cross_attention_dim", 16 + text_width},
                                {"projection_class_embeddings_input_dim", 40}});
  recipe.text_encoder = ModelPart{.from = "", .config = kText};
  recipe.text_encoder_2 = ModelPart{
      .from = "",
      .config = with(kText, {{"hidden_size", text_width}, {"projection_dim", projection}})};
  return recipe;
}

TEST(NetworksTest, ADenoiserOfTextAndSizesNeedsTwoTextEncodersThatFit) {
  EXPECT_EQ(error_of(xl_of(8, 16)), "");
  EXPECT_TRUE(has(error_of(xl_of(8, 12)), "leaves 16 for a caption"));
  ModelRecipe one = xl_of(8, 16);
  one.text_encoder_2.reset();
  one.unet->config["cross_attention_dim"] = 16;
  EXPECT_TRUE(has(error_of(one), "needs model.text_encoder_2"));
  ModelRecipe wide = xl_of(8, 16);
  wide.unet->config["addition_time_embed_dim"] = 8;
  EXPECT_TRUE(has(error_of(wide), "leaves nothing for a caption"));
}

TEST(NetworksTest, OfTwoTextEncodersTheFirstOnesLastLayerIsNotTrained) {
  Recipe recipe{.model = xl_of(8, 16)};
  auto networks = *Networks::create(recipe, nullptr);
  size_t first = 0, second = 0;
  const auto trained = *networks->begin_training(Train::kDenoiser, {});
  for (const models::NamedTensor& p : trained) {
    first += p.name.starts_with("text_encoder.text_model.encoder") ||
             p.name.starts_with("text_encoder.text_model.final_layer_norm");
    second += p.name.starts_with("text_encoder_2.text_model.encoder");
  }
  EXPECT_EQ(first, 0u) << "it has one layer, and that comes behind the state that is used";
  EXPECT_GT(second, 0u);
}

TEST(NetworksTest, ATransformerThatDiffusersCouldNotCallIsRefused) {
  const auto transformer = [](const Json& changes) {
    const Json config = {{"num_attention_heads", 2}, {"attention_head_dim", 6},
                         {"num_layers", 1},          {"cross_attention_dim", 12},
                         {"sample_size", 8},         {"caption_channels", 16}};
    return ModelRecipe{.transformer = ModelPart{.from = "", .config = with(config, changes)}};
  };
  EXPECT_EQ(error_of(transformer(Json::object())), "");
  EXPECT_TRUE(has(error_of(transformer({{"out_channels", 7}})), "twice that"));
  EXPECT_TRUE(has(error_of(transformer({{"use_additional_conditions", true}})), "of 128"));
}

TEST(NetworksTest, LatentsThatAreShiftedAreRefused) {
  const auto autoencoder = [](const Json& changes) {
    return ModelRecipe{.autoencoder = ModelPart{.from = "", .config = with(kAutoencoder, changes)}};
  };
  EXPECT_EQ(error_of(autoencoder({{"use_quant_conv", false}})), "");
  EXPECT_TRUE(has(error_of(autoencoder({{"shift_factor", 0.1}})), "'shift_factor'"));
}

TEST(NetworksTest, ATextProjectionIsRefused) {
  const std::string folder = testing::TempDir() + "/networks-projection";
  const Json config = with(kText, {{"architectures", {"CLIPTextModelWithProjection"}}});
  const models::ClipTextModel model(*models::ClipTextConfig::parse(config, "text"), 1);
  ASSERT_TRUE(models::save_model(folder, models::ModelKind::kClipTextProjection, config,
                                 model.parameters()));
  ModelRecipe recipe;
  recipe.text_encoder = ModelPart{.from = folder, .config = {}};
  EXPECT_TRUE(has(error_of(recipe), "must be a CLIPTextModel"));
  std::filesystem::remove_all(folder);
}

TEST(NetworksTest, TheContextThatIsProjectedIsTheTextEncodersWidth) {
  ModelRecipe recipe = unet_of({{"encoder_hid_dim", 16}});
  recipe.text_encoder = ModelPart{.from = "", .config = kText};
  EXPECT_EQ(error_of(recipe), "");
  recipe.unet->config["encoder_hid_dim"] = 12;
  EXPECT_TRUE(has(error_of(recipe), "12 must be the text encoder's hidden_size 16"));
}

// Values of a parameter by start(); of all, as one text of names where they differ.
std::string different_starts(const Networks& networks, const Networks& expected) {
  std::string different;
  const auto all = networks.parameters(), wanted = expected.parameters();
  for (size_t i = 0; i < wanted.size(); ++i) {
    at::Tensor value = at::zeros(wanted[i].tensor.sizes());
    networks.start(all[i], value);
    if (!value.equal(wanted[i].tensor)) different += all[i].name + " ";
  }
  return different;
}

TEST(NetworksTest, ShardedParametersHaveNoMemoryUntilSomethingNeedsThem) {
  const std::string folder = testing::TempDir() + "yard_networks_later." + std::to_string(getpid());
  const models::UNet2DConditionModel given(
      *models::UNetConfig::parse(with(kUNet, {{"cross_attention_dim", 16}}), "unet"), 5);
  ASSERT_TRUE(models::save_model(folder, models::ModelKind::kUNet,
                                 with(kUNet, {{"cross_attention_dim", 16}}), given.parameters()));
  Recipe recipe{.model = {.autoencoder = ModelPart{.from = "", .config = kAutoencoder},
                          .unet = ModelPart{.from = folder, .config = {}},
                          .text_encoder = ModelPart{.from = "", .config = kText}}};
  const auto whole = *Networks::create(recipe, nullptr);
  recipe.parallel.mode = ParallelMode::kZero3;
  const auto later = *Networks::create(recipe, nullptr);
  for (const auto& p : later->parameters()) EXPECT_FALSE(has_memory(p.tensor)) << p.name;
  EXPECT_EQ(different_starts(*later, *whole), "");
  const auto trained = *later->begin_training(Train::kDenoiser, {"unet.mid_block.*"});
  later->fill_in(Train::kDenoiser, trained);
  for (const auto& p : later->parameters()) {
    const bool is_frozen = p.name.starts_with("autoencoder.") || p.name.starts_with("unet.mid_b");
    EXPECT_EQ(has_memory(p.tensor), is_frozen) << p.name;
  }
  EXPECT_EQ(different_starts(*later, *whole), "");
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace yard::loop
