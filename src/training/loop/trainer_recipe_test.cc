// Whole runs with what a recipe may ask for: predictions, optimisers, frozen parts, memory.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "base/file.h"
#include "loop/testing/tiny_run.h"
#include "models/safetensors.h"

namespace yard::loop {
namespace {

namespace fs = std::filesystem;

// Saved at the end of stages and where a run is stopped.
const std::vector<std::string> kPlain = {"sampling.prompts=[]", "checkpoint.keep=99",
                                         "checkpoint.every_steps=0"};

std::vector<std::string> with(std::vector<std::string> more) {
  more.insert(more.begin(), kPlain.begin(), kPlain.end());
  return more;
}

TEST_F(TrainerTest, AnUnevenLastMicroBatchCountsByItsSamples) {
  ASSERT_TRUE(run("uneven", with({"stages.cached.micro_batch=3"})));
  ASSERT_TRUE(run("whole", with({"stages.cached.micro_batch=8"})));
  expect_near("uneven", "whole", 1e-4);
}

TEST_F(TrainerTest, EveryPredictionTrainsAndIsSavedWithItsScheduler) {
  const std::map<std::string, std::string> cases = {
      {"{prediction: sample, min_snr_gamma: 5}", "\"sample\""},
      {"{prediction: v_prediction, zero_terminal_snr: true, min_snr_gamma: 5, noise_offset: 0.1}",
       "\"trailing\""},
      {"{prediction: epsilon, p2_gamma: 1}", "\"epsilon\""},
      {"{prediction: flow_prediction, timestep_sampling: logit_normal, flow_shift: 3}",
       "\"use_flow_sigmas\": true"}};
  int index = 0;
  for (const auto& [diffusion, part] : cases) {
    const std::string output = "out-" + std::to_string(++index);
    const Status status = run(output, {"diffusion=" + diffusion, "sampling.guidance_rescale=0.7",
                                       "sampling.every_steps=0"});
    ASSERT_TRUE(status) << diffusion << ": " << status.error().message;
    for (const auto& [step, loss] : losses(output)) EXPECT_TRUE(std::isfinite(loss)) << diffusion;
    const std::string scheduler =
        *read_file(path(output + "/pipeline/scheduler/scheduler_config.json"));
    EXPECT_PRED_FORMAT2(testing::IsSubstring, part, scheduler);
    EXPECT_EQ(beats(output, "sample").size(), 2u);
  }
}

TEST_F(TrainerTest, EveryOptimizerTrainsAndIsTakenUpBitForBitWhateverTheAverage) {
  for (const char* optimizer :
       {"{kind: sgd, momentum: 0.9, nesterov: true}", "{kind: adamw8bit}"}) {
    const auto overrides =
        with({std::string("optimizer=") + optimizer, "ema={start_step: 2, update_every: 2}",
              "stages.online.ema={decay: 0.5, warm_up: false}", "stages.online.schedule=polynomial",
              "stages.online.power=2"});
    const std::string name = std::string(optimizer).substr(7, 3);
    ASSERT_TRUE(run("whole-" + name, overrides));
    EXPECT_EQ(run_in_pieces(8, "cut-" + name, overrides), 2);
    EXPECT_EQ(losses("cut-" + name), losses("whole-" + name));
    EXPECT_TRUE(weights("cut-" + name) == weights("whole-" + name));
    const Status shared = run_on_ranks(
        2, "two-" + name, with({std::string("optimizer=") + optimizer, "parallel={mode: zero2}"}));
    ASSERT_TRUE(shared) << shared.error().message;
  }
}

// The tensors of a checkpoint whose every file has whole ones.
std::map<std::string, at::Tensor> saved_by_one_rank(const std::string& folder) {
  std::map<std::string, at::Tensor> tensors;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.path().extension() != ".safetensors") continue;
    const auto file = *models::read_safetensors(entry.path());
    for (const auto& t : file.tensors) tensors.emplace(t.name, t.tensor);
  }
  return tensors;
}

TEST_F(TrainerTest, WhatAStageFreezesStaysAtItsAverage) {
  const auto overrides = with({"stages.online.freeze=[text_encoder.*, unet.mid_block.*]"});
  ASSERT_TRUE(run("out", overrides));
  const std::string pipeline = path("out/pipeline/");
  const auto before = saved_by_one_rank(path("out/checkpoints/step-00000007"));
  const auto text = *models::read_safetensors(pipeline + "text_encoder/model.safetensors");
  for (const auto& t : text.tensors)
    EXPECT_TRUE(t.tensor.equal(before.at("text_encoder." + t.name))) << t.name;
  const auto unet =
      *models::read_safetensors(pipeline + "unet/diffusion_pytorch_model.safetensors");
  for (const auto& t : unet.tensors)
    EXPECT_EQ(t.tensor.equal(before.at("unet." + t.name)), t.name.starts_with("mid_block."))
        << t.name;
  EXPECT_EQ(run_in_pieces(8, "cut", overrides), 2);
  EXPECT_TRUE(weights("cut") == weights("out"));
}

TEST_F(TrainerTest, AFreezeThatMatchesNothingOrEverythingIsRefused) {
  const auto refusal = [&](const std::string& freeze) {
    const Status status = run("out", with({"stages.pixels.freeze=" + freeze}));
    return status ? "accepted" : status.error().message;
  };
  EXPECT_PRED_FORMAT2(testing::IsSubstring, "matches 'encoder.*'", refusal("[encoder.*]"));
  EXPECT_PRED_FORMAT2(testing::IsSubstring, "nothing to train", refusal("['*']"));
}

TEST_F(TrainerTest, MicroBatchesThatAreProbedFitTheMemoryAndStayWhatTheyAre) {
  ASSERT_TRUE(run("whole", with({"stages.cached.micro_batch=8"})));
  const auto overrides = with({"stages.cached.micro_batch=auto"});
  const auto used = [&](const std::string& output) {
    const Json notes = *parse_json(*read_file(path(output + "/micro_batches.json")), "notes");
    return notes["cached"]["micro_batch"].get<int64_t>();
  };
  ASSERT_TRUE(run("unlimited", overrides));
  EXPECT_EQ(used("unlimited"), 8);
  memory_bytes_ = 1;
  ASSERT_TRUE(run("one", overrides));
  EXPECT_EQ(used("one"), 1);
  expect_near("one", "whole", 1e-4);
  // The second start finds the note, whatever memory there is then.
  StopSource stop;
  HookedGroup group = stopping_group(stop, 5);
  EXPECT_FALSE(run_on(group, stop.token(), "cut", overrides));
  memory_bytes_ = 0;
  ASSERT_TRUE(run("cut", overrides));
  EXPECT_EQ(losses("cut"), losses("one"));
  EXPECT_TRUE(weights("cut") == weights("one"));
  memory_bytes_ = 1 << 20;
  ASSERT_TRUE(run_on_ranks(2, "two", overrides));
  expect_near("two", "whole", 1e-4);
}

TEST_F(TrainerTest, TheBestModelOfEachStageIsKept) {
  ASSERT_TRUE(run("out", with({"evaluation.every_steps=1"})));
  std::map<std::string, std::pair<double, int64_t>> best;
  for (const Json& look : beats("out", "eval")) {
    const double loss = look["loss"];
    const auto it = best.try_emplace(look["stage"], 1e9, 0).first;
    if (loss < it->second.first) it->second = {loss, look["global_step"]};
  }
  ASSERT_EQ(best.size(), 3u);
  for (const auto& [stage, expected] : best) {
    const Json facts = *parse_json(*read_file(path("out/best/" + stage + "/best.json")), "best");
    EXPECT_EQ(facts["loss"], expected.first) << stage;
    EXPECT_EQ(facts["global_step"], expected.second) << stage;
    const std::string folder = path("out/best/" + stage + "/" + facts["path"].get<std::string>());
    EXPECT_TRUE(fs::exists(folder + "/vae/diffusion_pytorch_model.safetensors")) << folder;
    EXPECT_EQ(fs::exists(folder + "/model_index.json"), stage != "pixels");
    EXPECT_EQ(std::distance(fs::directory_iterator(path("out/best/" + stage)), {}), 2);
  }
}

TEST_F(TrainerTest, HeldOutLossIsToldByTimestepsAndIsTheSameOnAnyNumberOfRanks) {
  const auto overrides = with({"evaluation={buckets: 2, looks: 2, every_steps: 2}"});
  ASSERT_TRUE(run("one", overrides));
  ASSERT_TRUE(run_on_ranks(2, "two", overrides));
  const auto one = beats("one", "eval"), two = beats("two", "eval");
  ASSERT_EQ(one.size(), two.size());
  for (size_t i = 0; i < one.size(); ++i) {
    EXPECT_EQ(one[i].contains("bucket_1_loss"), one[i]["stage"] != "pixels");
    EXPECT_FALSE(one[i].contains("bucket_2_loss"));
    if (one[i]["stage"] == "pixels") continue;
    const double first = one[i]["bucket_0_loss"], second = one[i]["bucket_1_loss"];
    EXPECT_NEAR(one[i]["loss"].get<double>(), (first + second) / 2, 1e-9);
    EXPECT_NEAR(two[i]["bucket_1_loss"].get<double>(), second, 1e-4 * second);
  }
}

TEST_F(TrainerTest, MetricsAreWrittenAsLinesAndEvents) {
  ASSERT_TRUE(run("out"));
  const std::string text = *read_file(path("out/metrics.jsonl"));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 10 + 6);
  EXPECT_PRED_FORMAT2(testing::IsSubstring, "\"steps_per_s\"", text);
  size_t event_files = 0;
  for (const auto& entry : fs::directory_iterator(path("out/tensorboard"))) {
    ++event_files;
    EXPECT_GT(entry.file_size(), 3'000u);
  }
  EXPECT_EQ(event_files, 1u);
}

}  // namespace
}  // namespace yard::loop
