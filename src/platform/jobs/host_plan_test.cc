#include "jobs/host_plan.h"

#include <gtest/gtest.h>

namespace yard::jobs {
namespace {

HostPlan a_plan() {
  HostPlan plan;
  plan.job = "job-1";
  plan.host = "algo-2";
  plan.hosts = {{.name = "algo-1"}, {.name = "algo-10"}, {.name = "algo-2"}};
  plan.runtime.python = "/opt/venv";
  plan.log_dir = "/tmp/logs";
  plan.hyperparameters = {{"lr", "0.1"}};
  plan.channels = {{.config = {{"ChannelName", "train"}}, .directory = "/data"}};
  plan.output = {.s3_uri = "s3://b/out", .compress = false};
  plan.health.gpu_count_min = 3;
  plan.health.collective_bytes_per_second_min = 1e9;
  plan.hang_after_steps = 50;
  plan.network = PlanNetwork::kShared;
  plan.network_dir = "/home/jobs/other";
  plan.waits_for_go = true;
  plan.hang_after_s = 7;
  return plan;
}

Code code_of(Json json) {
  const auto plan = host_plan_from_json(json, "plan.json");
  return plan ? Code::kInternal : plan.error().code;
}

TEST(HostPlan, ComesBackFromItsJson) {
  const Json json = to_json(a_plan());
  const auto again = host_plan_from_json(json, "plan.json");
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(to_json(*again), json);
  EXPECT_EQ(again->channels[0].directory, "/data");
  EXPECT_FALSE(again->output.compress);
}

TEST(HostPlan, RanksFollowTheOrderOfNamesAsText) {
  const HostPlan plan = a_plan();
  EXPECT_EQ(sorted_host_names(plan), (std::vector<std::string>{"algo-1", "algo-10", "algo-2"}));
  EXPECT_EQ(host_rank(plan), 2);
}

TEST(HostPlan, WhatIsMissingOrWrongIsRefused) {
  const Json good = to_json(a_plan());
  ASSERT_EQ(code_of(good), Code::kInternal);
  const auto with = [&](std::string_view key, Json value) {
    Json json = good;
    json[std::string(key)] = std::move(value);
    return code_of(json);
  };
  EXPECT_EQ(with("version", 2), Code::kInvalidArgument);
  EXPECT_EQ(with("kind", "other"), Code::kInvalidArgument);
  EXPECT_EQ(with("host", "algo-3"), Code::kInvalidArgument);
  EXPECT_EQ(with("hosts", Json::array()), Code::kInvalidArgument);
  EXPECT_EQ(with("runtime", {{"python", "/a"}, {"root", "/b"}}), Code::kInvalidArgument);
  EXPECT_EQ(with("runtime", {{"python", "relative"}}), Code::kInvalidArgument);
  EXPECT_EQ(with("log_dir", "relative"), Code::kInvalidArgument);
  EXPECT_EQ(with("environment", {{"A=B", "x"}}), Code::kInvalidArgument);
  EXPECT_EQ(with("hyperparameters", {{"a", 1}}), Code::kInvalidArgument);
  EXPECT_EQ(with("stop_grace_s", -1), Code::kInvalidArgument);
  EXPECT_EQ(with("hang_after_s", -1), Code::kInvalidArgument);
  EXPECT_EQ(with("network_dir", "relative"), Code::kInvalidArgument);
  EXPECT_EQ(with("input_mode", "Slow"), Code::kInvalidArgument);
  EXPECT_EQ(with("output", {{"compression", "ZIP"}}), Code::kInvalidArgument);
  EXPECT_EQ(with("hots", 1), Code::kInvalidArgument);
}

TEST(HostPlan, AChannelsNameCannotLeaveItsFolder) {
  for (const char* name : {"..", ".", "", "a/b", "a b"}) {
    HostPlan plan = a_plan();
    plan.channels[0].config["ChannelName"] = name;
    EXPECT_FALSE(check_host_plan(plan)) << name;
  }
}

TEST(HostPlan, HostsHaveDifferentNamesAndAllAddressesOrNone) {
  HostPlan plan = a_plan();
  plan.hosts[1].name = "algo-1";
  EXPECT_FALSE(check_host_plan(plan));
  plan = a_plan();
  plan.hosts[1].address = "10.0.0.1";
  EXPECT_FALSE(check_host_plan(plan));
}

TEST(HostStatus, ComesBackFromItsJson) {
  HostStatus status;
  status.phase = HostPhase::kUpload;
  status.phases = {{HostPhase::kHealth, 1.5}, {HostPhase::kUpload, 2.5}};
  status.outcome = HostOutcome::kFailed;
  status.cause = HostCause::kHostFault;
  status.failure_reason = "AlgorithmError: x, exit code: 1";
  status.supervisor_pid = 7;
  status.supervisor_start_ticks = 8;
  const Json json = to_json(status);
  const auto again = host_status_from_json(json, "status.json");
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(to_json(*again), json);
  Json bad = json;
  bad["phase"] = "nap";
  EXPECT_EQ(host_status_from_json(bad, "status.json").error().code, Code::kCorrupt);
}

}  // namespace
}  // namespace yard::jobs
