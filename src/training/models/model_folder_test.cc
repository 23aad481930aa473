#include "models/model_folder.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/file.h"
#include "models/safetensors.h"

namespace yard::models {
namespace {

const Json kUNet = {{"sample_size", 8},
                    {"in_channels", 3},
                    {"out_channels", 3},
                    {"block_out_channels", {8, 16}},
                    {"norm_num_groups", 4},
                    {"layers_per_block", 1},
                    {"down_block_types", {"DownBlock2D", "CrossAttnDownBlock2D"}},
                    {"up_block_types", {"CrossAttnUpBlock2D", "UpBlock2D"}},
                    {"cross_attention_dim", 12},
                    {"num_attention_heads", 4}};
const Json kAutoencoder = {{"block_out_channels", {8, 16}},
                           {"norm_num_groups", 4},
                           {"latent_channels", 3},
                           {"down_block_types", {"DownEncoderBlock2D", "DownEncoderBlock2D"}},
                           {"up_block_types", {"UpDecoderBlock2D", "UpDecoderBlock2D"}}};
const Json kClip = {
    {"vocab_size", 40},       {"hidden_size", 16},        {"intermediate_size", 32},
    {"num_hidden_layers", 2}, {"num_attention_heads", 2}, {"max_position_embeddings", 9},
    {"bos_token_id", 38},     {"eos_token_id", 39},       {"pad_token_id", 39}};

at::Tensor ramp(at::IntArrayRef shape) {
  int64_t count = 1;
  for (const int64_t side : shape) count *= side;
  return (at::arange(count, at::kFloat) * 0.37).sin().view(shape);
}

std::unique_ptr<UNet2DConditionModel> make_unet(uint64_t seed = 5) {
  return std::make_unique<UNet2DConditionModel>(*UNetConfig::parse(kUNet, "unet"), seed);
}

class ModelFolderTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = testing::TempDir() + "/models-" + info->name();
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void save_unet() {
    ASSERT_TRUE(save_model(folder_, ModelKind::kUNet, kUNet, make_unet()->parameters()));
  }
  std::string weights() const { return folder_ + "/diffusion_pytorch_model.safetensors"; }
  // Rewrites the weights file with its tensors changed.
  template <typename Change>
  void change_weights(Change change) {
    auto file = read_safetensors(weights());
    ASSERT_TRUE(file);
    std::vector<NamedTensor> tensors;
    for (const NamedTensor& t : file->tensors) tensors.push_back({t.name, t.tensor.clone()});
    change(tensors);
    ASSERT_TRUE(write_safetensors(weights(), tensors));
  }
  std::string load_error() {
    const auto model = load_unet(folder_);
    if (model) return "loaded";
    EXPECT_EQ(model.error().code, Code::kInvalidArgument);
    return model.error().message;
  }

  std::string folder_;
};

std::vector<NamedTensor>::iterator named(std::vector<NamedTensor>& tensors, std::string_view name) {
  return std::ranges::find(tensors, name, &NamedTensor::name);
}
bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

TEST_F(ModelFolderTest, SavedAndLoadedUNetComputesTheSame) {
  const c10::NoGradGuard no_grad;
  const auto model = make_unet();
  ASSERT_TRUE(save_model(folder_, ModelKind::kUNet, kUNet, model->parameters()));
  const auto loaded = load_unet(folder_);
  ASSERT_TRUE(loaded) << loaded.error().message;
  const at::Tensor sample = ramp({2, 3, 8, 8}), context = ramp({2, 5, 12});
  const at::Tensor time = at::arange(2, at::kLong) * 100;
  EXPECT_TRUE(
      (*loaded)->forward(sample, time, context).equal(model->forward(sample, time, context)));
}

TEST_F(ModelFolderTest, SavedConfigNamesHeadsAsDiffusersDoes) {
  save_unet();
  const auto config = read_config(folder_);
  ASSERT_TRUE(config);
  EXPECT_EQ((*config)["attention_head_dim"], 4);
  EXPECT_FALSE(config->contains("num_attention_heads"));
}

TEST_F(ModelFolderTest, TextEncoderWithoutThePrefixLoads) {
  const ClipTextModel model(*ClipTextConfig::parse(kClip, "clip"), 1);
  ASSERT_TRUE(save_model(folder_, ModelKind::kClipText, kClip, model.parameters()));
  std::vector<NamedTensor> stripped;
  for (const NamedTensor& p : model.parameters()) {
    stripped.push_back({p.name.substr(std::string_view("text_model.").size()), p.tensor});
  }
  stripped.push_back({"embeddings.position_ids", at::arange(9, at::kLong)});
  ASSERT_TRUE(write_safetensors(folder_ + "/model.safetensors", stripped));
  const auto loaded = load_clip_text(folder_);
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_TRUE((*loaded)->parameters()[3].tensor.equal(model.parameters()[3].tensor));
}

TEST_F(ModelFolderTest, AMappedModelHasNoMemoryAndTheFoldersWeights) {
  const ClipTextModel model(*ClipTextConfig::parse(kClip, "clip"), 1);
  ASSERT_TRUE(save_model(folder_, ModelKind::kClipText, kClip, model.parameters()));
  const auto mapped = map_clip_text(folder_);
  ASSERT_TRUE(mapped) << mapped.error().message;
  ASSERT_EQ(mapped->weights.size(), model.parameters().size());
  for (size_t i = 0; i < mapped->weights.size(); ++i) {
    EXPECT_EQ(mapped->model->parameters()[i].tensor.storage().data(), nullptr);
    EXPECT_EQ(mapped->weights[i].name, model.parameters()[i].name);
    EXPECT_TRUE(mapped->weights[i].tensor.equal(model.parameters()[i].tensor));
  }
  const auto unet = map_unet(folder_);
  ASSERT_FALSE(unet);
  EXPECT_TRUE(has(unet.error().message, "holds a CLIPTextModel")) << unet.error().message;
  std::vector<NamedTensor> fewer = model.parameters();
  fewer.pop_back();
  ASSERT_TRUE(save_model(folder_, ModelKind::kClipText, kClip, fewer));
  const auto missing = map_clip_text(folder_);
  ASSERT_FALSE(missing);
  EXPECT_TRUE(has(missing.error().message, model.parameters().back().name + "' is missing"))
      << missing.error().message;
}

TEST_F(ModelFolderTest, AutoencoderWithTheOldAttentionNamesLoads) {
  const AutoencoderKL model(*AutoencoderConfig::parse(kAutoencoder, "vae"), 1);
  std::vector<NamedTensor> old;
  for (NamedTensor p : model.parameters()) {
    for (const auto& [now, then] :
         std::vector<std::pair<std::string, std::string>>{{".to_q.", ".query."},
                                                          {".to_k.", ".key."},
                                                          {".to_v.", ".value."},
                                                          {".to_out.0.", ".proj_attn."}}) {
      const size_t at = p.name.find(now);
      if (at != std::string::npos) p.name.replace(at, now.size(), then);
    }
    old.push_back(p);
  }
  ASSERT_TRUE(save_model(folder_, ModelKind::kAutoencoder, kAutoencoder, old));
  const auto loaded = load_autoencoder(folder_);
  EXPECT_TRUE(loaded) << loaded.error().message;
}

TEST_F(ModelFolderTest, HalfPrecisionWeightsAreWidened) {
  save_unet();
  change_weights([](auto& tensors) {
    for (NamedTensor& t : tensors) t.tensor = t.tensor.to(at::kHalf);
  });
  const auto loaded = load_unet(folder_);
  ASSERT_TRUE(loaded) << loaded.error().message;
  const at::Tensor& weight = (*loaded)->parameters()[0].tensor;
  EXPECT_EQ(weight.scalar_type(), at::kFloat);
  EXPECT_TRUE(at::allclose(weight, make_unet()->parameters()[0].tensor, 1e-3, 1e-4));
}

TEST_F(ModelFolderTest, AMissingTensorIsNamed) {
  save_unet();
  change_weights([](auto& tensors) { tensors.erase(named(tensors, "conv_out.bias")); });
  EXPECT_TRUE(has(load_error(), "'conv_out.bias' is missing")) << load_error();
}

TEST_F(ModelFolderTest, AnUnexpectedTensorIsNamed) {
  save_unet();
  change_weights([](auto& tensors) { tensors.push_back({"add_embedding.weight", at::ones({2})}); });
  EXPECT_TRUE(has(load_error(), "'add_embedding.weight' is not part")) << load_error();
}

TEST_F(ModelFolderTest, ATensorOfAnotherShapeIsNamedWithBothShapes) {
  save_unet();
  change_weights([](auto& tensors) { named(tensors, "conv_in.bias")->tensor = at::ones({1, 8}); });
  EXPECT_TRUE(has(load_error(), "'conv_in.bias' has shape [1, 8], the model wants [8]"))
      << load_error();
}

TEST_F(ModelFolderTest, ARefusedCopyChangesNothing) {
  const auto model = make_unet();
  const at::Tensor before = model->parameters()[0].tensor.clone();
  std::vector<NamedTensor> from;
  for (const NamedTensor& p : model->parameters())
    from.push_back({p.name, at::ones(p.tensor.sizes())});
  from.back().tensor = at::ones({99});
  EXPECT_FALSE(copy_parameters(from, model->parameters(), "test"));
  EXPECT_TRUE(model->parameters()[0].tensor.equal(before));
}

TEST_F(ModelFolderTest, AFolderOfAnotherClassIsRefused) {
  save_unet();
  const auto model = load_autoencoder(folder_);
  ASSERT_FALSE(model);
  EXPECT_TRUE(has(model.error().message, "holds a UNet2DConditionModel, not a AutoencoderKL"));
  std::ofstream(folder_ + "/config.json") << R"({"_class_name": "UNet2DModel"})";
  EXPECT_TRUE(has(load_error(), "'UNet2DModel' is not supported")) << load_error();
}

TEST_F(ModelFolderTest, WeightsInSeveralFilesAreFoundByTheirIndex) {
  const auto model = make_unet();
  save_unet();
  std::filesystem::remove(weights());
  Json map = Json::object();
  std::vector<std::vector<NamedTensor>> halves(2);
  for (size_t i = 0; i < model->parameters().size(); ++i) {
    halves[i % 2].push_back(model->parameters()[i]);
    map[model->parameters()[i].name] = i % 2 == 0 ? "a.safetensors" : "b.safetensors";
  }
  ASSERT_TRUE(write_safetensors(folder_ + "/a.safetensors", halves[0]));
  ASSERT_TRUE(write_safetensors(folder_ + "/b.safetensors", halves[1]));
  const std::string index = weights() + ".index.json";
  std::ofstream(index) << Json{{"weight_map", map}};
  const auto loaded = load_unet(folder_);
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_TRUE((*loaded)->parameters()[3].tensor.equal(model->parameters()[3].tensor));

  map[model->parameters()[0].name] = "../a.safetensors";
  std::ofstream(index) << Json{{"weight_map", map}};
  EXPECT_EQ(load_unet(folder_).error().code, Code::kCorrupt);
  std::ofstream(index) << "{}";
  EXPECT_EQ(load_unet(folder_).error().code, Code::kCorrupt);
  map[model->parameters()[0].name] = "c.safetensors";
  std::ofstream(index) << Json{{"weight_map", map}};
  EXPECT_EQ(load_unet(folder_).error().code, Code::kNotFound);
}

TEST_F(ModelFolderTest, MissingFilesAreNotFound) {
  EXPECT_EQ(load_unet(folder_).error().code, Code::kNotFound);
  save_unet();
  std::filesystem::remove(weights());
  EXPECT_EQ(load_unet(folder_).error().code, Code::kNotFound);
}

TEST_F(ModelFolderTest, InputsThatDoNotFitAreNamed) {
  save_unet();
  const at::Tensor sample = ramp({2, 3, 8, 8}), context = ramp({2, 5, 12}), time = ramp({2});
  const std::vector<std::pair<std::vector<NamedTensor>, std::string>> cases = {
      {{{"sample", sample}, {"timestep", time}}, "'encoder_hidden_states' is missing"},
      {{{"sample", ramp({2, 4, 8, 8})}, {"timestep", time}, {"encoder_hidden_states", context}},
       "'sample' has shape [2, 4, 8, 8]"},
      {{{"sample", sample},
        {"timestep", time},
        {"encoder_hidden_states", context},
        {"encoder_attention_masks", time}},
       "'encoder_attention_masks' is not one that this model takes, did you mean"},
      {{{"sample", sample},
        {"timestep", time},
        {"encoder_hidden_states", context},
        {"encoder_attention_mask", time}},
       "'encoder_attention_mask' has shape [2], the model wants [2, 5]"},
      {{{"sample", sample}, {"timestep", ramp({3})}, {"encoder_hidden_states", context}},
       "'timestep' has shape [3]"},
      {{{"sample", sample}, {"timestep", time}, {"encoder_hidden_states", ramp({3, 5, 12})}},
       "'encoder_hidden_states' has shape [3, 5, 12]"},
  };
  for (const auto& [inputs, why] : cases) {
    ASSERT_TRUE(write_safetensors(folder_ + "/in", inputs));
    const auto status = forward_file(folder_, folder_ + "/in", folder_ + "/out");
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, Code::kInvalidArgument);
    EXPECT_TRUE(has(status.error().message, why)) << status.error().message;
    EXPECT_FALSE(std::filesystem::exists(folder_ + "/out"));
  }
}

TEST_F(ModelFolderTest, WhatAConfigurationAsksForIsAskedForByName) {
  Json json = kUNet;
  json.update({{"addition_embed_type", "text_time"},
               {"addition_time_embed_dim", 4},
               {"projection_class_embeddings_input_dim", 29},
               {"num_class_embeds", 3}});
  const UNet2DConditionModel model(*UNetConfig::parse(json, "unet"), 1);
  ASSERT_TRUE(save_model(folder_, ModelKind::kUNet, json, model.parameters()));
  std::vector<NamedTensor> inputs = {{"sample", ramp({2, 3, 8, 8})},
                                     {"timestep", ramp({2})},
                                     {"encoder_hidden_states", ramp({2, 5, 12})}};
  const auto error = [&]() -> std::string {
    EXPECT_TRUE(write_safetensors(folder_ + "/in", inputs));
    const auto status = forward_file(folder_, folder_ + "/in", folder_ + "/out");
    return status ? "" : status.error().message;
  };
  EXPECT_TRUE(has(error(), "'class_labels' is missing"));
  inputs.push_back({"class_labels", at::arange(2, at::kLong) + 2});
  EXPECT_TRUE(has(error(), "'class_labels' must hold ids from 0 to 2"));
  inputs.back().tensor = at::arange(2, at::kLong);
  EXPECT_TRUE(has(error(), "'time_ids' is missing"));
  inputs.push_back({"added_cond_kwargs.time_ids", ramp({2, 6})});
  inputs.push_back({"added_cond_kwargs.text_embeds", ramp({2, 4})});
  EXPECT_TRUE(has(error(), "'text_embeds' has shape [2, 4], the model wants [2, 5]"));
  inputs.back().tensor = ramp({2, 5});
  EXPECT_EQ(error(), "");
}

TEST_F(ModelFolderTest, SidesThatAnAutoencoderCannotHalveAreRefused) {
  const AutoencoderKL model(*AutoencoderConfig::parse(kAutoencoder, "vae"), 1);
  ASSERT_TRUE(save_model(folder_, ModelKind::kAutoencoder, kAutoencoder, model.parameters()));
  ASSERT_TRUE(write_safetensors(folder_ + "/in", {{"sample", ramp({1, 3, 7, 8})}}));
  const auto status = forward_file(folder_, folder_ + "/in", folder_ + "/out");
  ASSERT_FALSE(status);
  EXPECT_TRUE(has(status.error().message, "must be multiples of 2")) << status.error().message;
}

TEST_F(ModelFolderTest, IdsOutsideTheVocabularyAreRefused) {
  const ClipTextModel model(*ClipTextConfig::parse(kClip, "clip"), 1);
  ASSERT_TRUE(save_model(folder_, ModelKind::kClipText, kClip, model.parameters()));
  for (const at::Tensor& ids : {at::ones({1, 3}, at::kLong) * 40, at::ones({1, 3}, at::kLong) * -1,
                                at::ones({1, 10}, at::kLong), at::ones({1, 3})}) {
    ASSERT_TRUE(write_safetensors(folder_ + "/in", {{"input_ids", ids}}));
    const auto status = forward_file(folder_, folder_ + "/in", folder_ + "/out");
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, Code::kInvalidArgument) << status.error().message;
  }
}

// Not a test by itself: tests/conformance/test_models.py runs it and opens the folders, made in
// TEST_TMPDIR, with the reference packages.
TEST(ModelFolderToolTest, DISABLED_WritesFoldersForTheReferencePackages) {
  const std::string root = testing::TempDir();
  const UNet2DConditionModel unet(*UNetConfig::parse(kUNet, "unet"), 5);
  const AutoencoderKL autoencoder(*AutoencoderConfig::parse(kAutoencoder, "vae"), 6);
  const ClipTextModel clip(*ClipTextConfig::parse(kClip, "clip"), 7);
  ASSERT_TRUE(save_model(root + "/unet", ModelKind::kUNet, kUNet, unet.parameters()));
  ASSERT_TRUE(
      save_model(root + "/vae", ModelKind::kAutoencoder, kAutoencoder, autoencoder.parameters()));
  ASSERT_TRUE(save_model(root + "/text_encoder", ModelKind::kClipText, kClip, clip.parameters()));
}

}  // namespace
}  // namespace yard::models
