// What the engine decides and reads; jobs through real processes are in tests/faults/test_jobs.py.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/ids.h"
#include "base/subprocess.h"
#include "base/testing/fake_clock.h"
#include "engine/home_config.h"
#include "engine/job_control.h"
#include "engine/local_engine.h"
#include "engine/run_section.h"
#include "host/job_status.h"

namespace yard::engine {
namespace {

namespace fs = std::filesystem;
using jobs::JobEvent;
using jobs::JobState;

TEST(CoreListTest, ListsAndRangesAreRead) {
  EXPECT_EQ(*parse_core_list("3"), (std::vector{3}));
  EXPECT_EQ(*parse_core_list("0-2,5,8-9"), (std::vector{0, 1, 2, 5, 8, 9}));
}

TEST(CoreListTest, AnythingElseIsRefused) {
  for (const char* text : {"", ",", "1,", ",1", "a", "1-", "-1", "2-1", "1,1", "3,1", "1 2",
                           "1-2-3", "99999", "0x1", "1.5"}) {
    const auto got = parse_core_list(text);
    ASSERT_FALSE(got) << text;
    EXPECT_EQ(got.error().code, Code::kInvalidArgument);
  }
}

TEST(HomeConfigTest, WithoutAFileTheMachineIsOneHost) {
  const auto config = load_home_config("/no/such/yard.yaml", {0, 1, 4});
  ASSERT_TRUE(config) << config.error().message;
  ASSERT_EQ(config->hosts.size(), 1U);
  EXPECT_EQ(config->hosts[0].cores, (std::vector{0, 1, 4}));
}

TEST(HomeConfigTest, HostsAreSlices) {
  const auto config = parse_home_config(
      "hosts:\n  - {name: left, cores: '0-1'}\n  - {name: right, cores: 3}\n", "y", {0, 1, 2, 3});
  ASSERT_TRUE(config) << config.error().message;
  ASSERT_EQ(config->hosts.size(), 2U);
  EXPECT_EQ(config->hosts[1].name, "right");
  EXPECT_EQ(config->hosts[1].cores, (std::vector{3}));
}

TEST(HomeConfigTest, WhatCannotBeIsRefusedAndNamed) {
  struct Row {
    const char* text;
    const char* named;
  };
  const Row rows[] = {
      {"hots: []", "did you mean 'hosts'?"},
      {"- a", "key: value"},
      {"hosts: 3", "'hosts' is not a list"},
      {"hosts: []", "'hosts' is not a list"},
      {"hosts: [{nam: a, cores: 0}]", "did you mean 'name'?"},
      {"hosts: [{cores: 0}]", "'name' is missing"},
      {"hosts: [{name: a}]", "'cores'"},
      {"hosts: [{name: a, cores: [1]}]", "'cores' is not a word"},
      {"hosts: [{name: a, cores: 7}]", "has no core 7"},
      {"hosts: [{name: a, cores: 0}, {name: a, cores: 1}]", "two hosts 'a'"},
      {"hosts: [{name: a, cores: 0}, {name: b, cores: 0}]", "core 0 is given twice"},
      {"hosts: [", "line "},
  };
  for (const Row& row : rows) {
    const auto got = parse_home_config(row.text, "yard.yaml", {0, 1});
    ASSERT_FALSE(got) << row.text;
    EXPECT_EQ(got.error().code, Code::kInvalidArgument);
    EXPECT_NE(got.error().message.find(row.named), std::string::npos) << got.error().message;
  }
}

TEST(RunSectionTest, OnlyTheKeyRunIsLookedAt) {
  const auto run = parse_run_section(
      "stages: {a: {steps: 3}}\nrun: {ranks: 2, retries: 5, price_per_host_hour: 1.2}\n", "r");
  ASSERT_TRUE(run) << run.error().message;
  EXPECT_EQ(run->ranks, 2);
  EXPECT_EQ(run->retries, 5);
  EXPECT_EQ(run->price_per_host_hour, 1.2);
  EXPECT_FALSE(run->stop_grace_s);
  EXPECT_TRUE(parse_run_section("", "r"));
  EXPECT_TRUE(parse_run_section("stages: 1", "r"));
  EXPECT_TRUE(parse_run_section("[1, 2]", "r"));  // yard-train will have something to say
}

TEST(RunSectionTest, BadSectionsAreRefused) {
  for (const char* text :
       {"run: {rank: 2}", "run: 3", "run: {ranks: two}", "run: {ranks: [1]}", "run: {ranks: 1.5}",
        "run: {ranks: 99999999999999999999}", "run: {", "run: {? [a] : 1}"}) {
    const auto got = parse_run_section(text, "r.yaml");
    ASSERT_FALSE(got) << text;
    EXPECT_EQ(got.error().code, Code::kInvalidArgument);
    EXPECT_EQ(got.error().message.rfind("r.yaml", 0), 0U) << got.error().message;
  }
}

jobdb::JobRow job_on(std::string host, JobState state) {
  jobdb::JobRow job;
  job.host = std::move(host);
  job.state = state;
  return job;
}

TEST(ChooseHostTest, TheLeastBusyHostIsTakenAndEndedJobsDoNotCount) {
  const std::vector<Host> hosts = {{"a", "", {0}}, {"b", "", {1}}};
  EXPECT_EQ(choose_host(hosts, {}).name, "a");
  EXPECT_EQ(choose_host(hosts, {job_on("a", JobState::kRunning)}).name, "b");
  EXPECT_EQ(choose_host(hosts, {job_on("a", JobState::kFailed)}).name, "a");
  EXPECT_EQ(
      choose_host(hosts, {job_on("a", JobState::kRunning), job_on("b", JobState::kQueued)}).name,
      "a");
}

class JobControlTest : public testing::Test {
 protected:
  ~JobControlTest() override { fs::remove_all(home_); }

  JobControl open() {
    JobControlOptions options;
    options.home = home_;
    options.yard_program = yard_program_;
    options.env = environment();
    options.clock = &clock_;
    auto control = JobControl::open(options);
    EXPECT_TRUE(control) << control.error().message;
    return *std::move(control);
  }
  jobs::JobSpec spec(const std::string& name) const {
    jobs::JobSpec spec;
    spec.name = name;
    spec.command = {"/bin/true"};
    spec.working_dir = "/";
    spec.output_dir = home_ / "jobs" / name / "output";
    return spec;
  }
  // A stand-in for `yard supervise`: answers with `line`.
  void supervisor_answers(const std::string& line) {
    fs::create_directories(home_);
    yard_program_ = home_ / "answer.sh";
    std::ofstream(yard_program_) << "#!/bin/sh\n" << line << "\n";
    fs::permissions(yard_program_, fs::perms::owner_all);
  }

  const fs::path home_ = fs::temp_directory_path() / ("yard-engine-test-" + random_name(8));
  std::string yard_program_ = "/no/such/yard";
  FakeClock clock_;
};

TEST_F(JobControlTest, AJobWhoseSupervisorCannotBeStartedFails) {
  JobControl control = open();
  const Status submitted = control.submit(spec("a"), "run: {}\n");
  ASSERT_FALSE(submitted);
  EXPECT_EQ(submitted.error().code, Code::kNotFound) << submitted.error().message;
  const auto job = control.find("a");
  ASSERT_TRUE(job) << job.error().message;
  EXPECT_EQ(job->state, JobState::kFailed);
  EXPECT_NE(job->reason.find("/no/such/yard"), std::string::npos) << job->reason;
  EXPECT_TRUE(fs::exists(control.folder("a").recipe()));
}

TEST_F(JobControlTest, WhatTheSupervisorComplainsOfIsToldOn) {
  supervisor_answers("echo 'failed no room'");
  const Status submitted = open().submit(spec("a"), {});
  ASSERT_FALSE(submitted);
  EXPECT_NE(submitted.error().message.find("no room"), std::string::npos);
}

TEST_F(JobControlTest, ASupervisorThatEndsWithoutAWordIsAnError) {
  supervisor_answers("exit 0");
  const Status submitted = open().submit(spec("a"), {});
  ASSERT_FALSE(submitted);
  EXPECT_NE(submitted.error().message.find("before it was ready"), std::string::npos);
}

TEST_F(JobControlTest, AJobThatCannotBeMadeIsNotRemembered) {
  JobControl control = open();
  auto bad = spec("a");
  std::ofstream(home_ / "file") << "x";
  bad.output_dir = home_ / "file" / "out";
  EXPECT_FALSE(control.submit(bad, {}));
  EXPECT_TRUE(control.list()->empty());
  EXPECT_FALSE(fs::exists(control.folder("a").dir));
}

TEST_F(JobControlTest, AJobWithoutItsSupervisorIsFoundOut) {
  JobControl control = open();
  ASSERT_TRUE(host::create_job_folder(control.folder("a"), spec("a")));
  // A process number that nobody can have.
  ASSERT_TRUE(control.db().create_job("a", control.folder("a").dir, {.pid = 1 << 30}));
  ASSERT_TRUE(control.db().apply({"a", JobEvent::kPlaced, 0, ""}));
  host::JobStatus status;
  status.name = "a";
  status.state = JobState::kRunning;
  ASSERT_TRUE(host::replace_file(control.folder("a").status(), host::to_json(status).dump()));

  const auto jobs = control.list();
  ASSERT_TRUE(jobs) << jobs.error().message;
  EXPECT_EQ(jobs->at(0).state, JobState::kFailed);
  EXPECT_EQ(jobs->at(0).reason.rfind("lost", 0), 0U) << jobs->at(0).reason;
  EXPECT_EQ(host::read_status(control.folder("a").status())->state, JobState::kFailed);
  EXPECT_TRUE(control.db().pending_actions()->empty());
}

TEST_F(JobControlTest, AJobWhoseOwnerLivesIsLeftAlone) {
  JobControl control = open();
  const auto self = host::identify_self();
  ASSERT_TRUE(control.db().create_job("a", control.folder("a").dir,
                                      {.pid = self.pid, .start_ticks = self.start_ticks}));
  EXPECT_EQ(control.list()->at(0).state, JobState::kQueued);
}

TEST_F(JobControlTest, OnlyAnEndedJobIsResumedAndOnlyALivingOneStopped) {
  JobControl control = open();
  EXPECT_FALSE(control.submit(spec("a"), {}));  // failed: there is no program
  EXPECT_EQ(control.stop("a", "stop").error().code, Code::kInvalidArgument);
  ASSERT_TRUE(control.db().apply({"a", JobEvent::kResumeAsked, 0, ""}));
  const auto self = host::identify_self();
  ASSERT_TRUE(control.db().set_owner("a", {.pid = self.pid, .start_ticks = self.start_ticks}));
  EXPECT_EQ(control.resume("a").error().code, Code::kInvalidArgument);
  // It is queued and nobody listens: asked for ten seconds of a clock that does not wait.
  EXPECT_EQ(control.stop("a", "stop").error().code, Code::kUnavailable);
  EXPECT_EQ(clock_.elapsed(), std::chrono::seconds(10));
}

TEST_F(JobControlTest, TheNearestJobIsNamed) {
  JobControl control = open();
  ASSERT_TRUE(control.db().create_job("emoji-small", "/x", {}));
  const auto got = control.find("emoji-smal");
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().code, Code::kNotFound);
  EXPECT_NE(got.error().message.find("did you mean 'emoji-small'?"), std::string::npos);
}

}  // namespace
}  // namespace yard::engine
