// Whole runs that look at the pictures they make.
#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "base/file.h"
#include "loop/testing/tiny_run.h"
#include "models/model_folder.h"

namespace yard::loop {
namespace {

namespace fs = std::filesystem;

const std::vector<std::string> kPlain = {"sampling.prompts=[]", "checkpoint.every_steps=0"};

std::vector<std::string> with(std::vector<std::string> more) {
  more.insert(more.begin(), kPlain.begin(), kPlain.end());
  return more;
}

class PictureScoresTest : public TrainerTest {
 protected:
  // A CLIP of random weights with the run's own tokenizer.
  std::string make_clip() const {
    const Json config = {{"projection_dim", 6},
                         {"text_config",
                          {{"vocab_size", 520},
                           {"hidden_size", 8},
                           {"intermediate_size", 16},
                           {"num_hidden_layers", 1},
                           {"num_attention_heads", 2},
                           {"max_position_embeddings", 6},
                           {"eos_token_id", 515}}},
                         {"vision_config",
                          {{"hidden_size", 8},
                           {"intermediate_size", 16},
                           {"num_hidden_layers", 1},
                           {"num_attention_heads", 2},
                           {"image_size", 8},
                           {"patch_size", 4}}}};
    const models::ClipModel clip(*models::ClipConfig::parse(config, "clip"), 3);
    // Otherwise every picture would be further from its caption than at a right angle.
    clip.parameters()[clip.parameters().size() - 2].tensor.neg_();
    const std::string folder = path("clip");
    EXPECT_TRUE(models::save_model(folder, models::ModelKind::kClip, config, clip.parameters()));
    const std::string text = recipe_text();
    const size_t begin = text.find("tokenizer: ") + 11;
    fs::copy(text.substr(begin, text.find('\n', begin) - begin), folder,
             fs::copy_options::recursive);
    return folder;
  }
  // Of the best look by that number: its value and step, by stage.
  std::map<std::string, std::pair<double, int64_t>> best(const std::string& output,
                                                         const std::string& by, double sign) const {
    std::map<std::string, std::pair<double, int64_t>> out;
    for (const Json& look : beats(output, "eval")) {
      const double value = look[look.contains(by) ? by : "loss"];
      const auto [it, fresh] = out.try_emplace(look["stage"], value, look["global_step"]);
      if (!fresh && sign * value < sign * it->second.first)
        it->second = {value, look["global_step"]};
    }
    return out;
  }
  Json facts(const std::string& output, const std::string& stage) const {
    return *parse_json(*read_file(path(output + "/best/" + stage + "/best.json")), "best");
  }
};

TEST_F(PictureScoresTest, TheDistanceOfPicturesIsTheSameOnAnyNumberOfRanksAndDecidesTheBest) {
  const auto overrides = with({"evaluation={pictures: 3, best_by: frechet, every_steps: 1}"});
  const Status status = run("one", overrides);
  ASSERT_TRUE(status) << status.error().message;
  for (const Json& look : beats("one", "eval")) {
    EXPECT_EQ(look.contains("frechet"), look["stage"] != "pixels");
    EXPECT_FALSE(look.contains("clip_score"));
    EXPECT_EQ(look.contains("features"), look.contains("frechet"));
    EXPECT_EQ(look.value("features", "latents"), "latents");
  }
  for (const auto& [stage, expected] : best("one", "frechet", 1)) {
    EXPECT_EQ(facts("one", stage)["global_step"], expected.second) << stage;
    if (stage == "pixels") continue;
    EXPECT_EQ(facts("one", stage)["frechet"], expected.first) << stage;
  }
  auto shared = overrides;
  shared.push_back("parallel={mode: zero3, bucket_bytes: 4KiB}");
  ASSERT_TRUE(run_on_ranks(2, "two", shared));
  const auto one = beats("one", "eval"), two = beats("two", "eval");
  ASSERT_EQ(one.size(), two.size());
  for (size_t i = 0; i < one.size(); ++i) {
    if (!one[i].contains("frechet")) continue;
    const double there = one[i]["frechet"];
    EXPECT_NEAR(two[i]["frechet"].get<double>(), there, 1e-2 * there + 1e-6) << i;
  }
}

TEST_F(PictureScoresTest, AClipGivesItsScoreAndItsFeaturesAndTheBestSurvivesAStop) {
  const auto overrides = with(
      {"evaluation={pictures: 4, best_by: clip_score, every_steps: 2, clip: " + make_clip() + "}"});
  const Status status = run("whole", overrides);
  ASSERT_TRUE(status) << status.error().message;
  for (const Json& look : beats("whole", "eval")) {
    if (look["stage"] == "pixels") continue;
    EXPECT_EQ(look["features"], "clip");
    EXPECT_GT(look["clip_score"].get<double>(), 0);
    EXPECT_LE(look["clip_score"].get<double>(), 100);
  }
  for (const auto& [stage, expected] : best("whole", "clip_score", -1)) {
    if (stage == "pixels") continue;
    EXPECT_EQ(facts("whole", stage)["clip_score"], expected.first) << stage;
  }
  run_in_pieces(8, "cut", overrides);
  for (const char* stage : {"pixels", "cached", "online"})
    EXPECT_EQ(facts("cut", stage), facts("whole", stage)) << stage;
}

TEST_F(PictureScoresTest, WhatPicturesCannotBeLookedAtWithIsRefused) {
  const auto refusal = [&](const std::string& evaluation) {
    const Status status = run("out", with({"evaluation=" + evaluation}));
    return status ? "accepted" : status.error().message;
  };
  EXPECT_PRED_FORMAT2(testing::IsSubstring, "at least 2", refusal("{pictures: 1}"));
  EXPECT_PRED_FORMAT2(testing::IsSubstring, "want 'pictures'", refusal("{best_by: frechet}"));
  EXPECT_PRED_FORMAT2(testing::IsSubstring, "wants a 'clip'",
                      refusal("{pictures: 4, best_by: clip_score}"));
  EXPECT_PRED_FORMAT2(testing::IsSubstring, "did you mean 'frechet'?",
                      refusal("{pictures: 4, best_by: frechett}"));
  EXPECT_PRED_FORMAT2(testing::IsSubstring, path("nowhere"),
                      refusal("{pictures: 4, clip: " + path("nowhere") + "}"));
  const std::string clip = make_clip();
  fs::remove(clip + "/vocab.json");
  EXPECT_PRED_FORMAT2(testing::IsSubstring, "vocab.json",
                      refusal("{pictures: 4, clip: " + clip + "}"));
}

}  // namespace
}  // namespace yard::loop
