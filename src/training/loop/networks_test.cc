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
  EXPECT_TRUE(has(error_of(unet_of({{"addition_embed_type", "text_time"},
                                    {"addition_time_embed_dim", 4},
                                    {"projection_class_embeddings_input_dim", 40}})),
                  "it wants 'addition_embed_type'"));
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
  const ModelRecipe recipe{.text_encoder = ModelPart{.from = folder, .config = {}}};
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
