#include "pipeline/pipeline_spec.h"

#include <gtest/gtest.h>

namespace yard::pipeline {
namespace {

constexpr const char* kYaml = R"(
name: birds
store: s3://train/runs/
price_per_host_hour: 2
steps:
  - {name: prep, prep: prep.yaml}
  - {name: words, needs: prep, process: [yard, prep, tokenizer, in, out], inputs: {shards: s3://data/b}}
  - name: low
    needs: [words]
    train: recipe.yaml
    until: small
    inputs: {shards: s3://data/b}
    set: {seed: 7, stages.small.steps: "10"}
  - {name: high, needs: low, train: recipe.yaml, hosts: 2, price_per_host_hour: 5}
)";

Result<PipelineSpec> parse(const std::string& yaml, std::vector<std::string> overrides = {}) {
  return parse_pipeline(yaml, "p.yaml", "/pipelines", overrides);
}

std::string refusal(const std::string& assignment) {
  const auto spec = parse(kYaml, {assignment});
  return spec ? "" : spec.error().message;
}

TEST(PipelineSpec, TakesStepsWithWhatTheFileSaysForAll) {
  const auto spec = parse(kYaml);
  ASSERT_TRUE(spec) << spec.error().message;
  EXPECT_EQ(spec->store, "s3://train/runs");
  ASSERT_EQ(spec->steps.size(), 4u);
  EXPECT_EQ(spec->steps[0].file, "/pipelines/prep.yaml");
  EXPECT_EQ(spec->steps[2].until, "small");
  EXPECT_EQ(spec->steps[2].overrides,
            (std::vector<std::string>{"seed=7", "stages.small.steps=10"}));
  EXPECT_EQ(spec->steps[2].price_per_host_hour, 2);
  EXPECT_EQ(spec->steps[3].host_count, 2);
  EXPECT_EQ(spec->steps[3].price_per_host_hour, 5);
}

TEST(PipelineSpec, AStepGoesOnFromTheNearestTrainingThatItNeeds) {
  const auto spec = parse(kYaml);
  ASSERT_TRUE(spec);
  EXPECT_EQ(spec->resumed_by(spec->steps[3]), &spec->steps[2]);
  EXPECT_EQ(spec->resumed_by(spec->steps[2]), nullptr);
}

TEST(PipelineSpec, OverridesNameStepsAndKeys) {
  const auto spec = parse(kYaml, {"steps.high.hosts=3", "name=other"});
  ASSERT_TRUE(spec) << spec.error().message;
  EXPECT_EQ(spec->name, "other");
  EXPECT_EQ(spec->steps[3].host_count, 3);
}

TEST(PipelineSpec, ErrorsNameFileStepAndKey) {
  EXPECT_EQ(refusal("steps.high.host=2"),
            "p.yaml: steps.high: unknown key 'host', did you mean 'hosts'?");
  EXPECT_EQ(refusal("steps.high.needs=lo"),
            "p.yaml: steps.high: 'needs': no earlier step has the name 'lo'");
  EXPECT_EQ(refusal("steps.high.hosts=0"), "p.yaml: steps.high: 'hosts' is not from 1 to 1024");
  EXPECT_NE(refusal("steps.words.hosts=2").find("steps.words: 'hosts'"), std::string::npos);
  EXPECT_NE(refusal("steps.high.inputs={shards: /tmp/b}").find("'inputs.shards': '/tmp/b' is not"),
            std::string::npos);
  EXPECT_NE(refusal("steps.nowhere.hosts=2").find("there is no 'nowhere'"), std::string::npos);
  EXPECT_NE(refusal("steps.high.name=low").find("two steps have the name 'low'"),
            std::string::npos);
  EXPECT_NE(refusal("steps.high.process=[ls]").find("has one of"), std::string::npos);
  EXPECT_NE(refusal("hosts").find("key=value"), std::string::npos);
  EXPECT_NE(refusal("store=/tmp").find("'store': '/tmp'"), std::string::npos);
}

TEST(PipelineSpec, WhatIsNoYamlIsRefusedWithItsLine) {
  const auto spec = parse("steps:\n  - [");
  ASSERT_FALSE(spec);
  EXPECT_NE(spec.error().message.find("p.yaml: line"), std::string::npos) << spec.error().message;
  EXPECT_FALSE(parse("steps: 3\nstore: s3://b"));
  EXPECT_FALSE(parse(""));
}

TEST(PipelineSpec, ARecipeIsNoPipeline) {
  EXPECT_TRUE(is_pipeline(kYaml));
  EXPECT_FALSE(is_pipeline("name: x\nstages: []\n"));
  EXPECT_FALSE(is_pipeline(": : :"));
}

}  // namespace
}  // namespace yard::pipeline
