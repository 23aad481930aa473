// Whole runs: what they leave, that resuming and sharing them out changes nothing, bad input.
#include "loop/trainer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <map>

#include "base/file.h"
#include "images/picture.h"
#include "loop/testing/tiny_run.h"

namespace yard::loop {
namespace {

namespace fs = std::filesystem;

// For what is not about checkpoints: one at the end of each stage is enough.
const std::string kFewSaves = "checkpoint.every_steps=0";

TEST_F(TrainerTest, LeavesAPipelineSamplesAndCheckpoints) {
  const Status status = run("out");
  ASSERT_TRUE(status) << status.error().message;
  EXPECT_EQ(weights("out").size(), 3u);
  EXPECT_TRUE(fs::exists(dir_ + "/out/pipeline/model_index.json"));
  EXPECT_TRUE(fs::exists(dir_ + "/out/checkpoints/step-00000010/manifest.json"));
  EXPECT_EQ(losses("out").size(), 10u);
  EXPECT_EQ(beats("out", "eval").size(), 6u);
  const auto samples = beats("out", "sample");
  ASSERT_EQ(samples.size(), 4u);
  const std::string png = samples.back()["path"];
  const auto bytes = *read_file(dir_ + "/" + png);
  const auto picture = images::decode(std::as_bytes(std::span(bytes)), {});
  ASSERT_TRUE(picture);
  EXPECT_EQ(picture->width, 2 * 16 + 2);
  EXPECT_EQ(picture->height, 2 * 16 + 2);
}

TEST_F(TrainerTest, StoppedAfterAnyStepAndResumedEqualsTheUninterruptedRunBitForBit) {
  use_plain_run("whole");
  for (const int steps : {1, 3}) {
    const std::string output = "stopped-" + std::to_string(steps);
    EXPECT_GT(run_in_pieces(steps, output, {kFewSaves}), 2);
    EXPECT_EQ(losses(output), losses("whole"));
    EXPECT_TRUE(weights(output) == weights("whole"));
  }
}

TEST_F(TrainerTest, StagesThatAreLeftToAnotherRunAreItsBitForBit) {
  ASSERT_TRUE(run("whole", {kFewSaves}));
  stop_at_stage_ = 1;
  ASSERT_TRUE(run("parts", {kFewSaves}));
  const size_t first_count = losses("parts").size();
  EXPECT_GT(first_count, 0u);
  EXPECT_LT(first_count, losses("whole").size());
  EXPECT_FALSE(std::filesystem::exists(dir_ + "/parts/pipeline"));
  ASSERT_TRUE(run("parts", {kFewSaves}));  // nothing is left for it
  EXPECT_EQ(losses("parts").size(), first_count);
  stop_at_stage_ = -1;
  ASSERT_TRUE(run("parts", {kFewSaves}));
  EXPECT_EQ(losses("parts"), losses("whole"));
  EXPECT_TRUE(weights("parts") == weights("whole"));
}

TEST_F(TrainerTest, TwoRanksGiveTheLossesOfOne) {
  use_plain_run("one");
  const Status status = run_on_ranks(2, "two", {kFewSaves});
  ASSERT_TRUE(status) << status.error().message;
  const auto one = losses("one"), two = losses("two");
  ASSERT_EQ(one.size(), two.size());
  for (const auto& [step, loss] : one) EXPECT_NEAR(two.at(step), loss, 1e-4 * loss) << step;
}

TEST_F(TrainerTest, MicroBatchesGiveTheLossesOfTheWholeBatch) {
  use_plain_run("small");
  ASSERT_TRUE(run("large", {"stages.cached.micro_batch=8", kFewSaves, "sampling.prompts=[]"}));
  const auto small = losses("small"), large = losses("large");
  for (const auto& [step, loss] : small) EXPECT_NEAR(large.at(step), loss, 1e-4 * loss) << step;
}

TEST_F(TrainerTest, EveryWayOfSharingTheModelOutGivesTheLossesOfOneRank) {
  const std::string bucket = "parallel.bucket_bytes=4KiB";
  const std::vector<std::string> changes = {"evaluation.samples=3", "stages.cached.micro_batch=1",
                                            kFewSaves};
  ASSERT_TRUE(run("one", changes));
  const std::map<std::string, int> modes = {
      {"{mode: zero1}", 2},
      {"{mode: zero2, accumulation: whole, activations: recomputed}", 2},
      {"{mode: zero3, offload: optimizer}", 2},
      {"{mode: hybrid, shard_size: 2, activations: recomputed}", 4}};
  int index = 0;
  for (const auto& [mode, ranks] : modes) {
    const std::string output = "shared-" + std::to_string(++index);
    // Three prompts and three held-out samples: shares of unequal size.
    const Status status = run_on_ranks(
        ranks, output, {"parallel=" + mode, bucket, changes[0], changes[1], changes[2]});
    ASSERT_TRUE(status) << mode << ": " << status.error().message;
    EXPECT_EQ(weights(output).size(), 3u) << mode;
    expect_near(output, "one", 1e-4);
  }
}

TEST_F(TrainerTest, AShardedRunIsTakenUpByAnyOtherMode) {
  const std::vector<std::string> zero3 = {"parallel={mode: zero3, bucket_bytes: 4KiB}"};
  ASSERT_TRUE(run_on_ranks(2, "whole", zero3));
  // What a run that died after step 6 leaves.
  fs::copy(dir_ + "/whole", dir_ + "/cut", fs::copy_options::recursive);
  for (const char* later : {"step-00000008", "step-00000010"})
    fs::remove_all(dir_ + "/cut/checkpoints/" + later);
  fs::remove_all(dir_ + "/cut/pipeline");
  for (const char* other : {"one", "four"})
    fs::copy(dir_ + "/cut", dir_ + "/" + other, fs::copy_options::recursive);
  ASSERT_TRUE(run_on_ranks(2, "cut", zero3));
  EXPECT_TRUE(weights("cut") == weights("whole"));
  ASSERT_TRUE(run("one"));
  ASSERT_TRUE(run_on_ranks(4, "four", {"parallel={mode: hybrid, shard_size: 2}"}));
  const auto expected = losses("whole");
  for (const char* other : {"one", "four"}) {
    const auto got = losses(other);
    for (const auto& [step, loss] : expected) EXPECT_NEAR(got.at(step), loss, 1e-4 * loss) << step;
  }
}

std::vector<fs::path> data_files(const std::string& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.path().extension() == ".safetensors") files.push_back(entry.path());
  return files;
}

TEST_F(TrainerTest, EveryRankWritesItsShareAndADamagedCheckpointIsPassedOver) {
  ASSERT_TRUE(run_on_ranks(2, "out", {}));
  const auto before = weights("out");
  const std::string newest = dir_ + "/out/checkpoints/step-00000010";
  const auto files = data_files(newest);
  ASSERT_EQ(files.size(), 2u);
  for (const fs::path& file : files) EXPECT_GT(fs::file_size(file), fs::file_size(files[0]) / 2);
  std::string bytes = *read_file(files[0]);
  bytes[bytes.size() - 100] ^= 1;
  ASSERT_TRUE(write_file_atomic(files[0], bytes));
  fs::remove_all(dir_ + "/out/pipeline");
  ASSERT_TRUE(run_on_ranks(2, "out", {}));
  EXPECT_EQ(beats("out", "resume").back()["global_step"], 8);
  EXPECT_TRUE(weights("out") == before);
}

TEST_F(TrainerTest, ACheckpointOfAnotherFormatIsNotTrainedOver) {
  const std::string folder = dir_ + "/out/checkpoints/step-00000002";
  fs::create_directories(folder);
  ASSERT_TRUE(write_file_atomic(folder + "/manifest.json", R"({"format": 1, "global_step": 2})"));
  const Status status = run("out");
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Code::kInvalidArgument);
  EXPECT_PRED_FORMAT2(testing::IsSubstring, "step-00000002", status.error().message);
}

TEST_F(TrainerTest, Bf16ParametersTrainUnderEveryMode) {
  for (const char* mode : {"ddp", "zero3"}) {
    const Status status = run_on_ranks(
        2, mode,
        {"precision=bf16", kFewSaves,
         "parallel={parameters: bf16, rounding: stochastic, mode: " + std::string(mode) + "}"});
    ASSERT_TRUE(status) << mode << ": " << status.error().message;
    expect_near(mode, "ddp", 0.02);
  }
}

TEST_F(TrainerTest, AShardSizeThatDoesNotDivideTheRanksIsRefused) {
  const Status status = run_on_ranks(2, "out", {"parallel={mode: hybrid, shard_size: 3}"});
  ASSERT_FALSE(status);
  EXPECT_PRED_FORMAT2(testing::IsSubstring, "these would: 1, 2", status.error().message);
}

TEST_F(TrainerTest, TrainingLowersTheLoss) {
  ASSERT_TRUE(
      run("out", {"stages.pixels.steps=60", "stages.pixels.learning_rate=1e-2",
                  "checkpoint.every_steps=0", "evaluation.samples=0", "sampling.prompts=[]"}));
  const auto all = losses("out");
  EXPECT_LT(all.at(60), 0.7 * all.at(1));
}

TEST_F(TrainerTest, Bf16StaysNearF32) {
  use_plain_run("f32");
  ASSERT_TRUE(run("bf16", {"precision=bf16", kFewSaves}));
  const auto exact = losses("f32");
  for (const auto& [step, loss] : losses("bf16")) EXPECT_NEAR(loss, exact.at(step), 0.1) << step;
}

TEST_F(TrainerTest, ALossThatIsNoNumberNamesStepAndSamples) {
  const Status status = run("out", {"stages.pixels.learning_rate=1e3", "optimizer.eps=1e-30",
                                    "optimizer.weight_decay=1e3", "stages.pixels.steps=50"});
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Code::kInvalidArgument);
  EXPECT_PRED_FORMAT2(testing::IsSubstring, "stage 'pixels', step ", status.error().message);
}

TEST_F(TrainerTest, ACheckpointOfAnotherRecipeIsRefused) {
  ASSERT_TRUE(run("out"));
  const Status status = run("out", {"optimizer.beta1=0.5"});
  ASSERT_FALSE(status);
  EXPECT_PRED_FORMAT2(testing::IsSubstring, "optimizer.beta1: 0.9 before, 0.5 now",
                      status.error().message);
}

TEST_F(TrainerTest, AFinishedRunIsNotTrainedAgain) {
  ASSERT_TRUE(run("out"));
  const auto before = weights("out");
  fs::remove_all(dir_ + "/out/pipeline");
  ASSERT_TRUE(run("out"));
  EXPECT_TRUE(weights("out") == before);
  EXPECT_EQ(beats("out", "step").size(), 10u);
}

TEST_F(TrainerTest, InputsThatAreNotThereAreNotFound) {
  fs::create_directories(dir_ + "/empty");
  const auto code = [&](const std::string& change) {
    const Status status = run("out", {change});
    return status ? "accepted" : std::string(to_string(status.error().code));
  };
  const std::string not_found(to_string(Code::kNotFound));
  EXPECT_EQ(code("data.shards=" + dir_ + "/nowhere"), not_found);
  EXPECT_EQ(code("data.shards=" + dir_ + "/empty"), not_found);
  EXPECT_EQ(code("model.tokenizer=" + dir_ + "/nowhere"), not_found);
  EXPECT_EQ(code("model.unet={from: " + dir_ + "/nowhere}"), not_found);
}

TEST_F(TrainerTest, SizesThatDoNotFitAreRefusedBeforeAnythingIsTrained) {
  const auto refusal = [&](const std::string& change) {
    const Status status = run("out", {change});
    if (status) return std::string("accepted");
    EXPECT_EQ(status.error().code, Code::kInvalidArgument);
    return status.error().message;
  };
  const auto expect = [&](const std::string& change, const std::string& part) {
    EXPECT_PRED_FORMAT2(testing::IsSubstring, part, refusal(change));
  };
  expect("stages.cached.resolution=10", "8, 12 or 16 would fit");
  expect("model.text_encoder.vocab_size=100", "vocab_size 100 is too small");
  expect("model.unet.cross_attention_dim=16", "hidden_size 8");
  expect("model.unet.in_channels=4", "in_channels");
  expect("model.unet.block_out_chanels=[8]", "block_out_channels");
  expect("stages.pixels.batch=400", "batch");
}

TEST_F(TrainerTest, SyntheticDataNeedsTheDenoiserAlone) {
  const Status status =
      run("out", {"data={synthetic: {samples: 16, tokens: 5}}", "model.autoencoder=null",
                  "model.text_encoder=null", "model.tokenizer=null", "sampling={}",
                  "stages=[{name: s, train: denoiser, resolution: 4, steps: 3, batch: 4, "
                  "micro_batch: 2, learning_rate: 1e-3}]"});
  ASSERT_TRUE(status) << status.error().message;
  EXPECT_EQ(losses("out").size(), 3u);
}

}  // namespace
}  // namespace yard::loop
