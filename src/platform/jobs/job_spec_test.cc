#include "jobs/job_spec.h"

#include <gtest/gtest.h>

#include <functional>

namespace yard::jobs {
namespace {

JobSpec good_spec() {
  JobSpec spec;
  spec.name = "emoji-1";
  spec.command = {"/bin/true", "a b", ""};
  spec.ranks = 2;
  spec.env = {{"LANG", "C"}};
  spec.working_dir = "/tmp";
  spec.output_dir = "/tmp/out";
  spec.retries = {.rank_fault = 3, .unavailable = 4};
  spec.stop_grace_s = 1.5;
  spec.price_per_host_hour = 1.2;
  spec.chaos = Chaos{.kill_rank = 1, .after_step = 40};
  return spec;
}

TEST(JobSpecTest, WhatIsWrittenIsReadBack) {
  const JobSpec spec = good_spec();
  const auto back = job_spec_from_json(to_json(spec), "job.json");
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(to_json(*back), to_json(spec));
  EXPECT_EQ(back->chaos->after_step, 40);
  EXPECT_EQ(back->retries.unavailable, 4);
}

TEST(JobSpecTest, DefaultsAreTheDocumentedOnes) {
  const Json json = {{"name", "a"}, {"command", {"x"}}, {"working_dir", "/"}, {"output_dir", "/o"}};
  const auto spec = job_spec_from_json(json, "job.json");
  ASSERT_TRUE(spec) << spec.error().message;
  EXPECT_EQ(spec->ranks, 1);
  EXPECT_EQ(spec->retries.rank_fault, 10);
  EXPECT_EQ(spec->stop_grace_s, 120);
  EXPECT_FALSE(spec->chaos);
}

TEST(JobSpecTest, UnknownKeysAreRefusedWithTheNearestName) {
  Json json = to_json(good_spec());
  json["rank"] = 2;
  auto got = job_spec_from_json(json, "job.json");
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().message, "job.json: unknown key 'rank', did you mean 'ranks'?");
  json = to_json(good_spec());
  json["retries"]["rank_faults"] = 2;
  got = job_spec_from_json(json, "job.json");
  ASSERT_FALSE(got);
  EXPECT_NE(got.error().message.find("did you mean 'rank_fault'?"), std::string::npos);
}

TEST(JobSpecTest, ImpossibleValuesAreRefusedAndNamed) {
  struct Row {
    std::string named;
    std::function<void(JobSpec&)> spoil;
  };
  const Row rows[] = {
      {"name", [](JobSpec& s) { s.name = "a/b"; }},
      {"name", [](JobSpec& s) { s.name = ""; }},
      {"name", [](JobSpec& s) { s.name = "-a"; }},
      {"name", [](JobSpec& s) { s.name = std::string(64, 'a'); }},
      {"command", [](JobSpec& s) { s.command.clear(); }},
      {"command", [](JobSpec& s) { s.command = {""}; }},
      {"command", [](JobSpec& s) { s.command[1] = std::string("a\0b", 3); }},
      {"command", [](JobSpec& s) { s.command[1] = std::string(size_t{2} << 20, 'x'); }},
      {"command", [](JobSpec& s) { s.command.resize(5000, "x"); }},
      {"ranks", [](JobSpec& s) { s.ranks = 0; }},
      {"ranks", [](JobSpec& s) { s.ranks = 1025; }},
      {"env", [](JobSpec& s) { s.env["A=B"] = "1"; }},
      {"env", [](JobSpec& s) { s.env[""] = "1"; }},
      {"env", [](JobSpec& s) { s.env["A"] = std::string("a\0b", 3); }},
      {"working_dir", [](JobSpec& s) { s.working_dir = "here"; }},
      {"output_dir", [](JobSpec& s) { s.output_dir = ""; }},
      {"retries.rank_fault", [](JobSpec& s) { s.retries.rank_fault = -1; }},
      {"retries.unavailable", [](JobSpec& s) { s.retries.unavailable = 1001; }},
      {"stop_grace_s", [](JobSpec& s) { s.stop_grace_s = -1; }},
      {"stop_grace_s", [](JobSpec& s) { s.stop_grace_s = 1e300 * 1e300; }},
      {"price_per_host_hour", [](JobSpec& s) { s.price_per_host_hour = -0.1; }},
      {"chaos.kill_rank", [](JobSpec& s) { s.chaos->kill_rank = 2; }},
      {"chaos.after_step", [](JobSpec& s) { s.chaos->after_step = 0; }},
  };
  for (const Row& row : rows) {
    JobSpec spec = good_spec();
    row.spoil(spec);
    const Status status = check_spec(spec);
    ASSERT_FALSE(status) << row.named;
    EXPECT_EQ(status.error().code, Code::kInvalidArgument);
    EXPECT_NE(status.error().message.find(row.named), std::string::npos) << status.error().message;
  }
}

TEST(JobSpecTest, NumbersTooLargeForTheirTypeDoNotWrapAround) {
  Json json = to_json(good_spec());
  json["ranks"] = (int64_t{1} << 32) + 1;
  EXPECT_FALSE(job_spec_from_json(json, "job.json"));
  json = to_json(good_spec());
  json["retries"]["rank_fault"] = (int64_t{1} << 32) + 1;
  EXPECT_FALSE(job_spec_from_json(json, "job.json"));
}

TEST(JobSpecTest, WrongTypesAreRefused) {
  for (const auto& [key, value] :
       std::vector<std::pair<std::string, Json>>{{"name", 3},
                                                 {"command", "ls"},
                                                 {"command", {1, 2}},
                                                 {"ranks", "two"},
                                                 {"ranks", 1.5},
                                                 {"env", {1}},
                                                 {"env", {{"A", 1}}},
                                                 {"retries", 3},
                                                 {"chaos", true},
                                                 {"stop_grace_s", "2m"}}) {
    Json json = to_json(good_spec());
    json[key] = value;
    const auto got = job_spec_from_json(json, "job.json");
    ASSERT_FALSE(got) << key << " " << value;
    EXPECT_EQ(got.error().code, Code::kInvalidArgument);
  }
  EXPECT_FALSE(job_spec_from_json(Json::array(), "job.json"));
}

}  // namespace
}  // namespace yard::jobs
