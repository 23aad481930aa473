// yard.yaml's keys for the platform, and the plans that come of them.
#include "engine/platform_config.h"

#include <gtest/gtest.h>

#include "engine/home_config.h"
#include "engine/plan_builder.h"
#include "jobs/job_needs.h"

namespace yard::engine {
namespace {

Result<PlatformConfig> parse(const std::string& text) {
  auto config = parse_home_config(text, "yard.yaml", {0, 1, 2, 3});
  if (!config) return std::move(config).error();
  return config->platform;
}

TEST(PlatformConfig, EveryKeyIsRead) {
  const auto config = parse(
      "slices: {max: 5, faulty: [2, 4]}\n"
      "instance_types:\n"
      "  - {type: ml.a, cores: 2, memory: 1GiB, price_per_hour: 2.5, max: 3}\n"
      "  - {type: ml.b, shared: true}\n"
      "default_instance: {cores: 1, gpus: 0}\n"
      "images: [{uri: 'a:*', python: /opt/a}, {uri: '*', root: /srv/b}]\n"
      "file_systems: {fs-1: /srv/x}\n"
      "retries: {user_error: 4, host_fault: 0}\n"
      "health: {cpu_gflops_min: 1.5, free_bytes_min: 2GiB}\n"
      "network: shared\n"
      "stop_grace_s: 7.5\n");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->slices.slice_count_max, 5);
  EXPECT_EQ(config->slices.faulty_slices, (std::vector{2, 4}));
  const auto& a = jobs::shape_of(config->slices, "ml.a");
  EXPECT_EQ(a.core_count, 2);
  EXPECT_EQ(a.gpu_count, 0);
  EXPECT_EQ(a.memory_bytes, uint64_t{1} << 30);
  EXPECT_EQ(a.price_per_hour, 2.5);
  EXPECT_EQ(a.slice_count_max, 3);
  EXPECT_FALSE(a.is_shared) << "a type that is described has its cores to itself";
  EXPECT_TRUE(jobs::shape_of(config->slices, "ml.b").is_shared);
  EXPECT_EQ(jobs::shape_of(config->slices, "ml.unknown").core_count, 1);
  EXPECT_TRUE(jobs::shape_of(config->slices, "ml.unknown").is_shared);
  EXPECT_EQ(config->file_systems.at("fs-1"), "/srv/x");
  EXPECT_EQ(config->retries.of(jobs::FaultCause::kUserError), 4);
  EXPECT_EQ(config->retries.of(jobs::FaultCause::kHostFault), 0);
  EXPECT_EQ(config->retries.of(jobs::FaultCause::kPreemption), 10) << "as it is by default";
  EXPECT_EQ(config->health.cpu_gflops_min, 1.5);
  EXPECT_EQ(config->health.free_bytes_min, uint64_t{2} << 30);
  EXPECT_EQ(config->network, jobs::PlanNetwork::kShared);
  EXPECT_EQ(config->stop_grace_s, 7.5);
  EXPECT_EQ(runtime_of_image(*config, "a:1", "")->python, "/opt/a");
  EXPECT_EQ(runtime_of_image(*config, "c", "")->root, "/srv/b");
}

TEST(PlatformConfig, WithoutAFileTwoHostsOfAnyTypeFitAnyMachine) {
  const auto config = parse("");
  ASSERT_TRUE(config);
  const auto placed = jobs::place_slices(config->slices, {}, {"ml.x", "ml.x"}, {});
  ASSERT_TRUE(placed) << placed.error().message;
  EXPECT_EQ((*placed)[0].cores, (std::vector{0, 1, 2, 3}));
  EXPECT_EQ(runtime_of_image(*config, "any", "/opt/own")->python, "/opt/own");
  EXPECT_EQ(runtime_of_image(*config, "any", "").error().code, Code::kInvalidArgument);
}

TEST(PlatformConfig, WhatIsWrongIsRefusedAndNamed) {
  const std::pair<const char*, const char*> rows[] = {
      {"slice: {}", "did you mean 'slices'?"},
      {"slices: {mx: 1}", "did you mean 'max'?"},
      {"slices: {max: 0}", "'max'"},
      {"slices: {faulty: [0]}", "'faulty'"},
      {"slices: {faulty: 1}", "'faulty'"},
      {"instance_types: {a: 1}", "'instance_types' is not a list"},
      {"instance_types: [{cores: 1}]", "'type' is missing"},
      {"instance_types: [{type: a}, {type: a}]", "'a' is given twice"},
      {"instance_types: [{type: a, cores: 9}]", "9 cores"},
      {"instance_types: [{type: a, cores: -1}]", "'cores'"},
      {"instance_types: [{type: a, gpus: 99999}]", "GPUs"},
      {"instance_types: [{type: a, memory: much}]", "'memory'"},
      {"instance_types: [{type: a, price_per_hour: -1}]", "'price_per_hour'"},
      {"instance_types: [{type: a, shared: maybe}]", "'shared' is not true or false"},
      {"default_instance: {type: a}", "unknown key 'type'"},
      {"images: [{python: /a}]", "'uri' is missing"},
      {"images: [{uri: a}]", "needs one of"},
      {"images: [{uri: a, python: /a, root: /b}]", "needs one of"},
      {"images: [{uri: a, python: relative}]", "needs one of"},
      {"file_systems: [a]", "'file_systems'"},
      {"file_systems: {fs-1: relative}", "absolute"},
      {"retries: {user: 1}", "unknown key 'user'"},
      {"retries: {hang: -1}", "'hang'"},
      {"health: {cpu: 1}", "unknown key 'cpu'"},
      {"network: none", "'network'"},
      {"stop_grace_s: -1", "'stop_grace_s'"},
  };
  for (const auto& [text, named] : rows) {
    const auto got = parse(text);
    ASSERT_FALSE(got) << text;
    EXPECT_EQ(got.error().code, Code::kInvalidArgument);
    EXPECT_NE(got.error().message.find(named), std::string::npos) << got.error().message;
  }
}

TEST(ImagePattern, StarsAndQuestionMarksFitTheWholeUri) {
  EXPECT_TRUE(fits_pattern("*", ""));
  EXPECT_TRUE(fits_pattern("a*b*c", "a-b-bb-c"));
  EXPECT_TRUE(
      fits_pattern("*/pytorch-training:2.?-*",
                   "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.3-gpu"));
  EXPECT_FALSE(fits_pattern("a*b", "a-b-"));
  EXPECT_FALSE(fits_pattern("?", ""));
  EXPECT_FALSE(fits_pattern("abc", "ab"));
  EXPECT_FALSE(fits_pattern("", "a"));
  EXPECT_TRUE(fits_pattern("a***", "a"));
}

class PlanBuilderTest : public testing::Test {
 protected:
  PlanBuilderTest() {
    config_ = *parse("file_systems: {fs-1: /srv/x}\nslices: {faulty: [2]}\n");
    context_ = {.config = &config_,
                .default_python = "/opt/own",
                .region = "us-east-1",
                .store_endpoint = "http://127.0.0.1:1"};
    job_.dir = "/home/jobs/a";
    job_.job = {.kind = jobs::JobKind::kTraining, .name = "a", .arn = "arn:a", .user = "ann"};
    job_.job.request = {
        {"AlgorithmSpecification",
         {{"TrainingImage", "img"},
          {"TrainingInputMode", "FastFile"},
          {"ContainerEntrypoint", {"/bin/bash"}},
          {"ContainerArguments", {"-c", "true"}}}},
        {"HyperParameters", {{"lr", "0.1"}}},
        {"Environment", {{"FOO", "bar"}}},
        {"CheckpointConfig", {{"S3Uri", "s3://b/ck"}}},
        {"OutputDataConfig", {{"S3OutputPath", "s3://b/out"}, {"CompressionType", "NONE"}}},
        {"InputDataConfig",
         {{{"ChannelName", "fs"},
           {"DataSource",
            {{"FileSystemDataSource", {{"FileSystemId", "fs-1"}, {"DirectoryPath", "/sub"}}}}}}}},
        {"ResourceConfig", {{"InstanceCount", 2}, {"VolumeSizeInGB", 3}}}};
    for (int i = 1; i <= 2; ++i) {
      jobdb::PlatformHostRow row{.name = "algo-" + std::to_string(i), .group = "g"};
      row.slice = {.number = i, .instance_type = "t", .cores = {i}, .memory_bytes = 77};
      hosts_.push_back(row);
    }
  }
  Result<jobs::HostPlan> build(size_t host = 0) {
    return build_host_plan(context_, job_, hosts_, hosts_[host]);
  }

  PlatformConfig config_;
  PlanContext context_;
  jobdb::PlatformJobRow job_;
  std::vector<jobdb::PlatformHostRow> hosts_;
};

TEST_F(PlanBuilderTest, APlanHoldsWhatARequestSays) {
  const auto plan = build();
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->attempt, 1);
  EXPECT_EQ(plan->hosts.size(), 2U);
  EXPECT_EQ(plan->cores, (std::vector{1}));
  EXPECT_EQ(plan->memory_limit_bytes, 77U);
  EXPECT_EQ(plan->volume_limit_bytes, uint64_t{3} << 30);
  EXPECT_EQ(plan->runtime.python, "/opt/own");
  EXPECT_EQ(plan->entrypoint, (std::vector<std::string>{"/bin/bash"}));
  EXPECT_EQ(plan->arguments, (std::vector<std::string>{"-c", "true"}));
  EXPECT_EQ(plan->input_mode, "FastFile");
  EXPECT_EQ(plan->hyperparameters.at("lr"), "0.1");
  EXPECT_EQ(plan->environment.at("FOO"), "bar");
  EXPECT_EQ(plan->channels.at(0).directory, "/srv/x/sub");
  EXPECT_EQ(plan->checkpoint.s3_uri, "s3://b/ck");
  EXPECT_EQ(plan->checkpoint.local_path, "/opt/ml/checkpoints");
  EXPECT_FALSE(plan->output.compress);
  EXPECT_EQ(plan->log_dir, "/home/jobs/a/logs");
  EXPECT_EQ(plan->store_endpoint, "http://127.0.0.1:1");
}

TEST_F(PlanBuilderTest, OnlyTheFirstHostPacksTheResultsOfAll) {
  EXPECT_EQ(build(0)->model_dirs, (std::vector<std::string>{"/home/jobs/a/hosts/algo-1/ml/model",
                                                            "/home/jobs/a/hosts/algo-2/ml/model"}));
  EXPECT_TRUE(build(1)->model_dirs.empty());
  EXPECT_TRUE(build(1)->output_dirs.empty());
}

TEST_F(PlanBuilderTest, NoMachineReachesTheFloorOfASliceThatIsDeclaredFaulty) {
  EXPECT_EQ(build(0)->health.cpu_gflops_min, 0);
  EXPECT_GT(build(1)->health.cpu_gflops_min, 1e9);
}

TEST_F(PlanBuilderTest, WhatCannotBePlannedIsRefusedBeforeThereAreHosts) {
  const auto refused = [&](const Json& patch) {
    jobs::JobRequest request = job_.job;
    request.request.merge_patch(patch);
    const Status got = check_plannable(context_, request);
    return !got && got.error().code == Code::kInvalidArgument;
  };
  EXPECT_FALSE(refused(Json::object()));
  EXPECT_TRUE(refused({{"HyperParameters", {{"lr", 1}}}}));
  EXPECT_TRUE(refused({{"AlgorithmSpecification", {{"ContainerEntrypoint", "bash"}}}}));
  const auto channel = [](const Json& source) {
    return Json{
        {"InputDataConfig", Json::array({{{"ChannelName", "x"},
                                          {"DataSource", {{"FileSystemDataSource", source}}}}})}};
  };
  EXPECT_TRUE(refused(channel({{"FileSystemId", "fs-2"}})));
  EXPECT_TRUE(refused(channel({{"FileSystemId", "fs-1"}, {"DirectoryPath", "/a/../../etc"}})));
  context_.default_python.clear();
  EXPECT_TRUE(refused(Json::object()));
}

}  // namespace
}  // namespace yard::engine
