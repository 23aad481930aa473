// Whole runs of other denoisers than one text encoder's UNet, of buckets, and of latents on disk.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "base/file.h"
#include "loop/latent_preparer.h"
#include "loop/picture_maker.h"
#include "loop/testing/tiny_run.h"

namespace yard::loop {
namespace {

namespace fs = std::filesystem;

const std::string kTwoEncoders =
    "{in_channels: 2, out_channels: 2, block_out_channels: [8, 8], norm_num_groups: 4, "
    "down_block_types: [DownBlock2D, CrossAttnDownBlock2D], "
    "up_block_types: [CrossAttnUpBlock2D, UpBlock2D], layers_per_block: 1, "
    "cross_attention_dim: 20, attention_head_dim: 2, addition_embed_type: text_time, "
    "addition_time_embed_dim: 4, projection_class_embeddings_input_dim: 34}";
const std::string kTextEncoder2 =
    "{vocab_size: 520, hidden_size: 12, intermediate_size: 16, num_hidden_layers: 2, "
    "num_attention_heads: 2, max_position_embeddings: 6, projection_dim: 10, hidden_act: gelu}";
const std::string kTransformer =
    "{num_attention_heads: 2, attention_head_dim: 6, num_layers: 2, cross_attention_dim: 12, "
    "in_channels: 2, out_channels: 4, sample_size: 4, patch_size: 1, caption_channels: 8}";

std::vector<std::string> xl(std::vector<std::string> more) {
  more.push_back("model.unet=" + kTwoEncoders);
  more.push_back("model.text_encoder_2=" + kTextEncoder2);
  return more;
}

std::vector<std::string> pixart(std::vector<std::string> more) {
  more.push_back("model.unet=null");
  more.push_back("model.transformer=" + kTransformer);
  return more;
}

TEST_F(TrainerTest, TwoTextEncodersAndSizesTrainAndAreTakenUpBitForBit) {
  ASSERT_TRUE(run("whole", xl({})));
  EXPECT_EQ(weights("whole").size(), 4u);
  EXPECT_EQ(beats("whole", "sample").size(), 4u);
  EXPECT_EQ(run_in_pieces(8, "cut", xl({})), 2);
  EXPECT_EQ(losses("cut"), losses("whole"));
  EXPECT_TRUE(weights("cut") == weights("whole"));
  const Status two = run_on_ranks(2, "two", xl({"parallel={mode: zero3, bucket_bytes: 4KiB}"}));
  ASSERT_TRUE(two) << two.error().message;
  expect_near("two", "whole", 1e-4);
}

TEST_F(TrainerTest, ATransformerTrainsAndIsTakenUpBitForBit) {
  const Status status = run("whole", pixart({"parallel.activations=recomputed"}));
  ASSERT_TRUE(status) << status.error().message;
  ASSERT_TRUE(run("kept", pixart({"sampling.prompts=[]"})));
  EXPECT_EQ(losses("kept"), losses("whole"));
  EXPECT_TRUE(weights("kept") == weights("whole"));
  EXPECT_TRUE(fs::exists(path("whole/pipeline/transformer/config.json")));
  EXPECT_EQ(run_in_pieces(8, "cut", pixart({"parallel.activations=recomputed"})), 2);
  EXPECT_TRUE(weights("cut") == weights("whole"));
  const Status sampled =
      write_pictures({.model = path("whole/pipeline"), .prompts = {"red", "blue"}, .steps = 2},
                     path("grid.png"), StopToken(), {});
  ASSERT_TRUE(sampled) << sampled.error().message;
}

TEST_F(TrainerTest, SizesThatADenoiserIsToldExcludeRandomCrops) {
  const Status status =
      run("out", xl({"data.random_crop=true", "stages.cached.cache_latents=false"}));
  ASSERT_FALSE(status);
  EXPECT_PRED_FORMAT2(testing::IsSubstring, "cut from the middle", status.error().message);
}

TEST_F(TrainerTest, AspectBucketsGiveBatchesOfTheirOwnShape) {
  const std::vector<std::string> buckets = {"data.cache=0", "sampling.prompts=[]",
                                            "stages.online.aspect_buckets=[8x16, 16x8, 12x12]"};
  const Status status = run("out", buckets);
  ASSERT_TRUE(status) << status.error().message;
  EXPECT_EQ(losses("out").size(), 10u);
  const auto refusal = [&](const std::string& change) {
    std::vector<std::string> changed = buckets;
    changed.push_back(change);
    const Status refused = run("out", changed);
    return refused ? "accepted" : refused.error().message;
  };
  EXPECT_PRED_FORMAT2(testing::IsSubstring, "'8by8'",
                      refusal("stages.online.aspect_buckets=[8by8]"));
  EXPECT_PRED_FORMAT2(testing::IsSubstring, "an aspect bucket's side of 10",
                      refusal("stages.online.aspect_buckets=[10x8]"));
  EXPECT_PRED_FORMAT2(testing::IsSubstring, "set data.cache to 0", refusal("data.cache=1MiB"));
}

// A model that is trained, and what starts from it on pictures of 8 px.
class LatentsTest : public TrainerTest {
 protected:
  // With the text encoder frozen, so that its states may be on disk too.
  std::vector<std::string> from(const std::string& trained, const std::string& stage) const {
    const std::string dir = path(trained + "/pipeline/");
    return {"model.autoencoder={from: " + dir + "vae}",
            "model.unet={from: " + dir + "unet}",
            "model.text_encoder={from: " + dir + "text_encoder, frozen: true}",
            "data.cache=0",
            "sampling.prompts=[]",
            "diffusion.caption_dropout=0.4",
            "stages=[{name: s, train: denoiser, resolution: 8, steps: 6, batch: 8, micro_batch: 4, "
            "learning_rate: 1e-3" +
                stage + "}]"};
  }
  Result<LatentProgress> prepare(const std::string& trained, const std::string& folder, bool text) {
    YARD_ASSIGN(Recipe recipe, parse_recipe(recipe_text(), "tiny.yaml", from(trained, "")));
    return prepare_latents(
        {.recipe = recipe, .source = "", .folder = path(folder), .resolution = 8, .text = text},
        StopToken(), {});
  }
  std::string refusal(const std::string& trained, const std::string& folder) {
    const std::string output = "refused-" + trained + "-" + folder;
    const Status status = run(output, from(trained, ", latents: " + path(folder)));
    return status ? "accepted" : status.error().message;
  }
};

TEST_F(LatentsTest, LatentsAndTextOnDiskGiveTheLossesOfEncodingOnLine) {
  ASSERT_TRUE(run("trained", {"sampling.prompts=[]"}));
  ASSERT_TRUE(run("online", from("trained", "")));
  for (const bool text : {true, false}) {
    const std::string folder = text ? "with-text" : "latents";
    const auto prepared = prepare("trained", folder, text);
    ASSERT_TRUE(prepared) << prepared.error().message;
    EXPECT_EQ(prepared->sample_count, 28);
    const std::string stage = ", latents: " + path(folder);
    const Status status = run("disk-" + folder, from("trained", stage));
    ASSERT_TRUE(status) << status.error().message;
    expect_near("disk-" + folder, "online", 1e-5);
    EXPECT_EQ(beats("disk-" + folder, "eval").size(), 3u);
    EXPECT_EQ(run_in_pieces(4, "cut-" + folder, from("trained", stage)), 2);
    EXPECT_TRUE(weights("cut-" + folder) == weights("disk-" + folder));
  }
  ASSERT_TRUE(run_on_ranks(2, "two", from("trained", ", latents: " + path("with-text"))));
  expect_near("two", "online", 1e-4);
  // Again: all is there.
  EXPECT_EQ(prepare("trained", "latents", false)->written_count, 0);
}

TEST_F(LatentsTest, LatentsOfOtherWeightsAreRefusedNamingBothHashes) {
  const std::vector<std::string> quick = {"sampling.prompts=[]", "stages.online.steps=1",
                                          "stages.cached.steps=1"};
  ASSERT_TRUE(run("trained", quick));
  std::vector<std::string> other = quick;
  other.push_back("seed=8");
  ASSERT_TRUE(run("other", other));
  ASSERT_TRUE(prepare("trained", "latents", true));
  EXPECT_EQ(refusal("trained", "latents"), "accepted");
  const std::string told = refusal("other", "latents");
  EXPECT_PRED_FORMAT2(testing::IsSubstring, "made by the autoencoder ", told);
  EXPECT_PRED_FORMAT2(testing::IsSubstring, "this run's is ", told);
  const auto prepared = prepare("other", "latents", true);
  ASSERT_FALSE(prepared);
  EXPECT_PRED_FORMAT2(testing::IsSubstring, "made by the autoencoder ", prepared.error().message);
  fs::remove(path("latents/latents-000000-000000.tar"));
  fs::remove_all(path("refused-trained-latents"));
  EXPECT_PRED_FORMAT2(testing::IsSubstring, "is missing of 1 shards",
                      refusal("trained", "latents"));
  EXPECT_PRED_FORMAT2(testing::IsSubstring, "latents.json", refusal("trained", "nowhere"));
}

TEST_F(LatentsTest, AnAutoencoderThatIsYetToBeTrainedMakesNoLatents) {
  const Recipe recipe = *parse_recipe(recipe_text(), "tiny.yaml", {});
  const auto prepared = prepare_latents(
      {.recipe = recipe, .folder = path("latents"), .resolution = 8}, StopToken(), {});
  ASSERT_FALSE(prepared);
  EXPECT_PRED_FORMAT2(testing::IsSubstring, "yet to be trained", prepared.error().message);
}

TEST_F(TrainerTest, ATraceOfSomeStepsNamesTheirPartsAndChangesNothing) {
  use_plain_run("plain");
  profiled_steps_ = 2;
  ASSERT_TRUE(run("out", {"sampling.prompts=[]"}));
  EXPECT_TRUE(weights("out") == weights("plain"));
  const Json trace = *parse_json(*read_file(path("out/profile/rank-0.trace.json")), "trace");
  std::map<std::string, int> ranges;
  for (const Json& event : trace["traceEvents"]) ++ranges[event.value("name", "")];
  // The fourth step is of micro-batches of 2 from a batch of 8.
  EXPECT_EQ(ranges["data"], 2);
  EXPECT_EQ(ranges["forward"], 1 + 4);
  EXPECT_EQ(ranges["backward"], 1 + 4);
  EXPECT_EQ(ranges["optimizer"], 2);
  EXPECT_GT(ranges["aten::convolution"], 0);
  const std::string table = *read_file(path("out/profile/rank-0.txt"));
  for (const char* part : {"data", "forward", "backward", "communication", "optimizer", "step"})
    EXPECT_PRED_FORMAT2(testing::IsSubstring, part, table);
}

TEST_F(TrainerTest, CheckpointsByMinutesAreSavedBesidesThoseBySteps) {
  ASSERT_TRUE(run("out", {"checkpoint={every_steps: 0, every_minutes: 1e-9, keep: 99}",
                          "sampling.prompts=[]"}));
  int count = 0;
  for (const auto& entry : fs::directory_iterator(path("out/checkpoints")))
    count += entry.is_directory();
  EXPECT_EQ(count, 10);
}

}  // namespace
}  // namespace yard::loop
