#include "pipeline/pipeline_jobs.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "pipeline/pipeline_state.h"
#include "pipeline/step_store.h"

namespace yard::pipeline {
namespace {

constexpr const char* kRecipe = "stages:\n  - {name: one}\n  - {name: two}\n  - {name: three}\n";

PipelineSpec spec() {
  auto parsed = parse_pipeline(R"(
name: birds
store: s3://train
steps:
  - {name: prep, prep: prep.yaml}
  - name: low
    needs: prep
    train: recipe.yaml
    hosts: 2
    ranks_per_host: 4
    inputs: {shards: s3://data/b, tokenizer: s3://data/t}
    set: {seed: 7}
)",
                               "p.yaml", "/pipelines", {});
  YARD_CHECK(parsed.has_value());
  return *std::move(parsed);
}

TEST(PipelineJobs, ATrainingStepIsATrainingJobOfItsHosts) {
  const PipelineSpec all = spec();
  const Json job =
      job_request(all, all.steps[1],
                  {.name = "j", .stop_at_stage = 2, .kill = RankKill{.rank = 1, .after_step = 9}});
  EXPECT_EQ(job["ResourceConfig"]["InstanceCount"], 2);
  EXPECT_EQ(job["CheckpointConfig"]["S3Uri"], "s3://train/birds/low/run");
  EXPECT_EQ(job["AlgorithmSpecification"]["ContainerEntrypoint"], Json({"yard", "launch"}));
  EXPECT_EQ(job["AlgorithmSpecification"]["ContainerArguments"],
            Json({"--ranks", "4", "--stop-at-stage", "2", "--kill-rank", "1", "--after-step", "9",
                  "--", "yard-train", "/opt/ml/input/data/recipe/recipe.yaml",
                  "data.shards=/opt/ml/input/data/shards",
                  "model.tokenizer=/opt/ml/input/data/tokenizer", "seed=7"}));
  ASSERT_EQ(job["InputDataConfig"].size(), 3u);
  EXPECT_EQ(job["InputDataConfig"][0]["DataSource"]["S3DataSource"]["S3Uri"],
            "s3://train/birds/low/input/");
}

TEST(PipelineJobs, PrepKeepsItsStateFromJobToJobAndItsHostsShareIt) {
  PipelineSpec all = spec();
  all.steps[0].host_count = 3;
  const Json job = job_request(all, all.steps[0], {.name = "j"});
  EXPECT_EQ(job["ProcessingResources"]["ClusterConfig"]["InstanceCount"], 3);
  EXPECT_FALSE(job.contains("ProcessingOutputConfig"));
  const Json& arguments = job["AppSpecification"]["ContainerArguments"];
  const auto state = std::ranges::find(arguments, Json("--state"));
  ASSERT_NE(state, arguments.end());
  EXPECT_EQ(*(state + 1), "s3://train/birds/prep/state");
  EXPECT_NE(std::ranges::find(arguments, Json("--hosts-file")), arguments.end());
}

TEST(PipelineJobs, StagesAreStoppedAtTheOneAfterTheLastWanted) {
  const auto stop = [](std::string_view until) {
    auto found = stage_to_stop_at(kRecipe, until, "r.yaml");
    return found ? *found : std::optional<int64_t>(-1);
  };
  EXPECT_EQ(stop("one"), 1);
  EXPECT_EQ(stop("two"), 2);
  EXPECT_EQ(stop("three"), std::nullopt);
  EXPECT_EQ(stop(""), std::nullopt);
  EXPECT_EQ(stop("tow"), -1);
  EXPECT_NE(stage_to_stop_at(kRecipe, "tow", "r").error().message.find("did you mean 'two'"),
            std::string::npos);
}

TEST(PipelineJobs, OnlyWhatWasLostIsTriedAgain) {
  const PipelineSpec all = spec();
  const auto failed = [&](const char* reason) {
    return may_try_again(
        sight_of(all.steps[1], {{"TrainingJobStatus", "Failed"}, {"FailureReason", reason}}));
  };
  EXPECT_TRUE(failed("AlgorithmError: rank 1 on algo-2 was killed by signal 9, exit code: 6"));
  EXPECT_TRUE(failed("InternalServerError: the host was lost"));
  EXPECT_FALSE(failed("AlgorithmError: unknown key, exit code: 2"));
  EXPECT_FALSE(failed("ClientError: no such object"));
  EXPECT_FALSE(may_try_again(sight_of(all.steps[1], {{"TrainingJobStatus", "InProgress"}})));
}

TEST(PipelineJobs, TheNewestWholeCheckpointGoesOnWithItsManifestLast) {
  EXPECT_EQ(
      newest_checkpoint({"step-00000010/a", "step-00000010/manifest.json", "step-00000020/a",
                         "step-00000020/manifest.json", "step-00000020/z", "step-00000030/a"}),
      (std::vector<std::string>{"step-00000020/a", "step-00000020/z",
                                "step-00000020/manifest.json"}));
  EXPECT_EQ(newest_checkpoint({"step-99999999/manifest.json", "step-100000000/manifest.json"}),
            (std::vector<std::string>{"step-100000000/manifest.json"}));
  EXPECT_TRUE(newest_checkpoint({"step-00000030/a", "other/manifest.json"}).empty());
}

TEST(PipelineJobs, OldCheckpointsGoManifestFirstAndTheNewestWholeOnesStay) {
  const std::vector<std::string> keys = {"step-00000010/a",
                                         "step-00000010/manifest.json",
                                         "step-00000020/a",
                                         "step-00000030/a",
                                         "step-00000030/manifest.json",
                                         "step-00000040/a",
                                         "step-00000040/manifest.json",
                                         "step-00000050/a",
                                         "other/step"};
  EXPECT_EQ(old_checkpoints(keys, 1),
            (std::vector<std::string>{"step-00000010/manifest.json", "step-00000030/manifest.json",
                                      "step-00000010/a", "step-00000020/a", "step-00000030/a"}));
  EXPECT_EQ(old_checkpoints(keys, 2),
            (std::vector<std::string>{"step-00000010/manifest.json", "step-00000010/a",
                                      "step-00000020/a"}));
  EXPECT_TRUE(old_checkpoints(keys, 3).empty());
  EXPECT_TRUE(old_checkpoints(keys, 0).empty());  // all are kept
}

TEST(PipelineJobs, TheStateIsReadAsItWasWritten) {
  PipelineState state{"birds", "p.yaml", {}};
  state.steps.push_back({.name = "low",
                         .kind = "train",
                         .status = StepStatus::kFailed,
                         .jobs = {"a", "b"},
                         .host_count = 2,
                         .held_s = 1.5,
                         .failure = "why",
                         .identity = {{"file", "text"}}});
  const auto read = pipeline_state_from(to_json(state), "state");
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(to_json(*read), to_json(state));
  Json other = to_json(state);
  other["steps"][0]["status"] = "asleep";
  EXPECT_FALSE(pipeline_state_from(other, "state"));
  other["format"] = 2;
  EXPECT_FALSE(pipeline_state_from(other, "state"));
}

}  // namespace
}  // namespace yard::pipeline
