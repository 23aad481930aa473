// Jobs from request to end, with supervisors that follow a script (testing/fake_supervisor.h).
#include "engine/platform_control.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/ids.h"
#include "base/log.h"
#include "base/random.h"
#include "base/subprocess.h"
#include "engine/testing/fake_supervisor.h"
#include "jobdb/platform_db.h"

namespace yard::engine {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

constexpr auto kPatience = 60s;

JobRequest request(const std::string& name, const std::string& script, int hosts = 1) {
  return {
      .kind = JobKind::kTraining,
      .name = name,
      .arn = "arn:aws:sagemaker:us-east-1:123456789012:training-job/" + name,
      .request =
          {{"TrainingJobName", name},
           {"RoleArn", "arn:aws:iam::123456789012:role/r"},
           {"AlgorithmSpecification", {{"TrainingImage", "any"}, {"TrainingInputMode", "File"}}},
           {"OutputDataConfig", {{"S3OutputPath", "s3://b/out"}}},
           {"ResourceConfig",
            {{"InstanceType", "ml.m5.large"}, {"InstanceCount", hosts}, {"VolumeSizeInGB", 1}}},
           {"StoppingCondition", {{"MaxRuntimeInSeconds", 3600}}},
           {"Environment", {{"SCRIPT", script}}}},
      .tags = {},
      .user = "tester"};
}

PlatformOptions options_of(const std::string& home, const std::string& config = "") {
  PlatformOptions options;
  options.home = home;
  options.yard_program = own_program();
  options.env = environment();
  options.default_python = "/usr";
  auto parsed = parse_home_config(config, "yard.yaml", cores_of_this_machine());
  EXPECT_TRUE(parsed) << parsed.error().message;
  if (parsed) options.config = *std::move(parsed);
  return options;
}

class PlatformControlTest : public testing::Test {
 protected:
  PlatformControlTest() {
    fs::create_directories(home_);
    EXPECT_TRUE(configure_log({.level = LogLevel::kInfo, .file = home_ + "/test.log"}));
  }
  ~PlatformControlTest() override {
    control_.reset();
    EXPECT_TRUE(configure_log({}));
    if (!HasFailure()) fs::remove_all(home_);
  }

  void open(const std::string& config = "") {
    control_.reset();
    auto control = PlatformControl::open(options_of(home_, config));
    ASSERT_TRUE(control) << control.error().message;
    control_ = *std::move(control);
  }
  void create(const JobRequest& job) {
    const Status created = control_->create(job);
    ASSERT_TRUE(created) << created.error().message;
  }
  JobView view(const std::string& name) {
    auto found = control_->find(JobKind::kTraining, name);
    EXPECT_TRUE(found) << found.error().message;
    return found ? *found : JobView{};
  }
  // Polls until `is_so`, for the state of another thread and of other processes.
  template <typename F>
  JobView wait_until(const std::string& name, F is_so) {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    JobView now = view(name);
    while (!is_so(now) && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(2ms);
      now = view(name);
    }
    EXPECT_TRUE(is_so(now)) << name << ": " << now.secondary_status << " " << now.failure_reason;
    return now;
  }
  JobView wait_for_end(const std::string& name) {
    return wait_until(name, [](const JobView& now) {
      return now.status == "Completed" || now.status == "Failed" || now.status == "Stopped";
    });
  }
  JobView wait_for(const std::string& name, std::string_view secondary) {
    return wait_until(name, [&](const JobView& now) { return now.secondary_status == secondary; });
  }
  int runs(const std::string& name, const std::string& host = "algo-1") const {
    std::ifstream file(home_ + "/jobs/" + name + "/hosts/" + host + "/runs.log");
    int count = 0;
    for (std::string line; std::getline(file, line);) ++count;
    return count;
  }

  const std::string home_ =
      (fs::temp_directory_path() / ("yard-platform-test-" + random_name(8))).string();
  std::unique_ptr<PlatformControl> control_;
};

std::vector<std::string> statuses(const JobView& view) {
  std::vector<std::string> words;
  for (const auto& change : view.changes) words.push_back(change.status);
  return words;
}
using Words = std::vector<std::string>;

TEST_F(PlatformControlTest, AJobOfTwoHostsGoesThroughAllItsStatuses) {
  open();
  create(request("a", "", 2));
  const JobView end = wait_for_end("a");
  EXPECT_EQ(end.status, "Completed");
  EXPECT_EQ(statuses(end),
            (Words{"Starting", "Starting", "Downloading", "Training", "Uploading", "Completed"}));
  for (size_t i = 1; i < end.changes.size(); ++i) {
    ASSERT_TRUE(end.changes[i - 1].end_t);
    EXPECT_EQ(*end.changes[i - 1].end_t, end.changes[i].start_t);
  }
  EXPECT_FALSE(end.changes.back().end_t);
  EXPECT_EQ(end.hosts, (Words{"algo-1", "algo-2"}));
  EXPECT_EQ(end.model_uri, "s3://b/out/a/output/model.tar.gz");
  EXPECT_EQ(end.exit_code, 0);
  EXPECT_EQ(runs("a", "algo-1"), 1);
  EXPECT_EQ(runs("a", "algo-2"), 1);
  ASSERT_TRUE(end.training_start_t);
  ASSERT_TRUE(end.training_end_t);
  EXPECT_NEAR(end.training_s, *end.training_end_t - *end.training_start_t, 0.01);
  EXPECT_EQ(end.billable_s, end.training_s);
}

TEST_F(PlatformControlTest, AScriptThatFailsEndsTheOthersAndIsNotRepeated) {
  open();
  create(request("a", "exit=3", 1));
  const JobView end = wait_for_end("a");
  EXPECT_EQ(end.status, "Failed");
  EXPECT_EQ(end.failure_reason, "AlgorithmError: it broke, exit code: 3");
  EXPECT_EQ(end.exit_code, 3);
  EXPECT_EQ(runs("a"), 1);
  EXPECT_EQ(end.model_uri, "s3://b/out/a/output/model.tar.gz") << "what there is is uploaded";
}

TEST_F(PlatformControlTest, AUserErrorIsRepeatedWhereTheConfigurationSaysSo) {
  open("retries: {user_error: 2}\n");
  create(request("a", "exit=3"));
  const JobView end = wait_for_end("a");
  EXPECT_EQ(end.status, "Failed");
  EXPECT_EQ(runs("a"), 3);
  EXPECT_EQ(std::ranges::count(statuses(end), "Restarting"), 2);
}

TEST_F(PlatformControlTest, ALostSupervisorRestartsTheJobOnAnotherSliceAndIsNotBilled) {
  open();
  create(request("a", "ms=30 lose=1:algo-2", 2));
  const JobView end = wait_for_end("a");
  EXPECT_EQ(end.status, "Completed") << end.failure_reason;
  EXPECT_EQ(end.attempt, 1);
  EXPECT_EQ(runs("a", "algo-1"), 2);
  // The same where the supervisor was lost before any work had begun.
  EXPECT_LE(end.billable_s, end.training_s);
  auto db = jobdb::PlatformDb::open(home_ + "/yard.db");
  const auto row = db->find(JobKind::kTraining, "a");
  EXPECT_EQ(row->avoided_slices, (std::vector{2}));
  EXPECT_EQ(row->used.of(jobs::FaultCause::kHostFault), 1);
  EXPECT_TRUE(fs::exists(row->dir + "/hosts/algo-1/status.attempt-0.json"));
}

TEST_F(PlatformControlTest, TheTagNeverRelaunchesAnything) {
  open();
  auto job = request("a", "lose=1:algo-1");
  job.tags["trainyard:relaunch"] = "never";
  create(job);
  const JobView end = wait_for_end("a");
  EXPECT_EQ(end.status, "Failed");
  EXPECT_NE(end.failure_reason.find("InternalServerError: host algo-1"), std::string::npos);
  EXPECT_EQ(runs("a"), 1);
}

TEST_F(PlatformControlTest, APreemptedJobIsInterruptedAndComesAgain) {
  open();
  create(request("a", "leave=1:algo-1"));
  const JobView end = wait_for_end("a");
  EXPECT_EQ(end.status, "Completed");
  EXPECT_EQ(statuses(end),
            (Words{"Starting", "Starting", "Downloading", "Training", "Interrupted", "Starting",
                   "Starting", "Downloading", "Training", "Uploading", "Completed"}));
}

TEST_F(PlatformControlTest, FaultyHostsAreReplacedBeforeTheScriptTheOthersKeepTheirs) {
  open("slices: {max: 8, faulty: [2, 3]}\n");
  create(request("a", "", 3));
  const JobView end = wait_for_end("a");
  EXPECT_EQ(end.status, "Completed") << end.failure_reason;
  EXPECT_EQ(end.attempt, 0);
  for (const char* host : {"algo-1", "algo-2", "algo-3"}) EXPECT_EQ(runs("a", host), 1) << host;
  auto db = jobdb::PlatformDb::open(home_ + "/yard.db");
  const auto row = db->find(JobKind::kTraining, "a");
  EXPECT_EQ(row->replaced_count, 2);
  const auto hosts = db->hosts(row->id);
  EXPECT_EQ((*hosts)[0].slice.number, 1);
  EXPECT_GT((*hosts)[1].slice.number, 3);
  EXPECT_GT((*hosts)[2].slice.number, 3);
}

TEST_F(PlatformControlTest, WithoutAHealthyHostAJobFailsAndSaysSo) {
  open("slices: {max: 2, faulty: [1, 2]}\n");
  create(request("a", ""));
  const JobView end = wait_for_end("a");
  EXPECT_EQ(end.status, "Failed");
  EXPECT_NE(end.failure_reason.find("CapacityError"), std::string::npos) << end.failure_reason;
  EXPECT_EQ(runs("a"), 0);
}

TEST_F(PlatformControlTest, ASupervisorThatCannotStartIsAHostFault) {
  open("slices: {max: 2}\n");
  create(request("a", "start_only"));
  const JobView end = wait_for_end("a");
  EXPECT_EQ(end.status, "Failed");
  EXPECT_EQ(runs("a"), 0);
}

TEST_F(PlatformControlTest, AStopReachesEveryHostAndResultsAreUploaded) {
  open();
  create(request("a", "wait", 2));
  wait_for("a", "Training");
  ASSERT_TRUE(control_->stop(JobKind::kTraining, "a"));
  ASSERT_TRUE(control_->stop(JobKind::kTraining, "a")) << "asked twice is as good as once";
  const JobView end = wait_for_end("a");
  EXPECT_EQ(end.status, "Stopped");
  const Words tail = {"Stopping", "Uploading", "Stopped"};
  const auto words = statuses(end);
  EXPECT_TRUE(std::equal(tail.rbegin(), tail.rend(), words.rbegin()));
  EXPECT_EQ(control_->stop(JobKind::kTraining, "a").error().code, Code::kInvalidArgument);
  EXPECT_EQ(end.model_uri, "s3://b/out/a/output/model.tar.gz");
}

TEST_F(PlatformControlTest, AJobThatWaitsIsStoppedAtOnce) {
  open("slices: {max: 1}\n");
  create(request("a", "wait"));
  wait_for("a", "Training");
  create(request("b", ""));
  wait_for("b", "Pending");
  ASSERT_TRUE(control_->stop(JobKind::kTraining, "b"));
  EXPECT_EQ(view("b").status, "Stopped");
  EXPECT_FALSE(view("b").training_start_t);
  ASSERT_TRUE(control_->stop(JobKind::kTraining, "a"));
  EXPECT_EQ(wait_for_end("a").status, "Stopped");
}

TEST_F(PlatformControlTest, TheLimitOfTheRuntimeStopsAJob) {
  open();
  auto job = request("a", "wait");
  job.request["StoppingCondition"]["MaxRuntimeInSeconds"] = 1;
  create(job);
  const JobView end = wait_for_end("a");
  EXPECT_EQ(end.status, "Stopped");
  EXPECT_EQ(end.secondary_status, "MaxRuntimeExceeded");
}

TEST_F(PlatformControlTest, AnUploadThatFailsFailsTheJob) {
  open();
  create(request("a", "fail_upload"));
  const JobView end = wait_for_end("a");
  EXPECT_EQ(end.status, "Failed");
  EXPECT_EQ(end.failure_reason, "ClientError: the store refuses the results");
}

TEST_F(PlatformControlTest, OfTwoJobsOfOneNameAtOnceOneIsMade) {
  open();
  std::atomic<int> made = 0;
  std::atomic<int> refused = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&] {
      const Status created = control_->create(request("same", "", 2));
      if (created)
        ++made;
      else if (created.error().code == Code::kExhausted)
        ++refused;
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(made, 1);
  EXPECT_EQ(refused, 7);
  EXPECT_EQ(wait_for_end("same").status, "Completed");
  EXPECT_EQ(runs("same"), 1);
}

TEST_F(PlatformControlTest, OfTwoHundredQueuedJobsThoseThatAreNotStoppedRunOnce) {
  constexpr int kRun = 16;
  open("slices: {max: 6}\n");
  const auto name = [](int i) { return "job-" + std::to_string(i); };
  for (int i = 0; i < 200; ++i) create(request(name(i), "", 1 + i % 2));
  for (int i = 199; i >= kRun; --i) ASSERT_TRUE(control_->stop(JobKind::kTraining, name(i)));
  for (int i = 0; i < 200; ++i) {
    const JobView end = wait_for_end(name(i));
    if (i < kRun) {
      EXPECT_EQ(end.status, "Completed") << end.failure_reason;
    }
    EXPECT_LE(runs(name(i)), 1);
    EXPECT_EQ(runs(name(i)) == 1, end.training_start_t.has_value()) << name(i);
  }
  JobFilter filter{.kind = JobKind::kTraining, .name_contains = "JOB-", .limit = 70};
  std::vector<std::string> listed;
  do {
    const auto page = control_->list(filter);
    ASSERT_TRUE(page) << page.error().message;
    for (const auto& job : page->jobs) {
      listed.push_back(job.job.name);
      EXPECT_FALSE(job.hosts.empty()) << job.job.name;
    }
    filter.page_token = page->next_token;
  } while (!filter.page_token.empty());
  ASSERT_EQ(listed.size(), 200U);
  for (int i = 0; i < 200; ++i) EXPECT_EQ(listed[static_cast<size_t>(i)], name(199 - i));
}

TEST_F(PlatformControlTest, AWarmPoolGoesToTheNextJobLikeIt) {
  open("slices: {max: 2}\ndefault_instance: {price_per_hour: 3600}\n");
  auto first = request("first", "", 2);
  first.request["ResourceConfig"]["KeepAlivePeriodInSeconds"] = 3600;
  create(first);
  wait_for_end("first");
  wait_until("first", [](const JobView& now) { return now.warm_pool_status == "Available"; });
  auto other = request("other", "", 2);  // does not fit the pool, and finds no other host
  create(other);
  wait_for("other", "Pending");
  ASSERT_TRUE(control_->stop(JobKind::kTraining, "other"));
  auto second = first;
  second.name = "second";
  second.arn += "-2";
  create(second);
  const JobView end = wait_for_end("second");
  EXPECT_EQ(end.status, "Completed");
  EXPECT_EQ(end.warm_pool_status, "Available");
  const JobView reused = view("first");
  EXPECT_EQ(reused.warm_pool_status, "Reused");
  EXPECT_EQ(reused.reused_by, "second");
  EXPECT_NEAR(reused.cost, 2 * (reused.billable_s + reused.warm_pool_billable_s), 1e-6);
  ASSERT_TRUE(control_->update_keep_alive("second", 0));
  wait_until("second", [](const JobView& now) { return now.warm_pool_status == "Terminated"; });
  EXPECT_EQ(control_->update_keep_alive("second", 5).error().code, Code::kInvalidArgument);
  // What is told of a job changes, the rest of it does not.
  ASSERT_TRUE(
      control_->update_request("second", {{"ProfilerConfig", {{"S3OutputPath", "s3://b"}}}}));
  Json changed = second.request;
  changed["ProfilerConfig"]["S3OutputPath"] = "s3://b";
  EXPECT_EQ(view("second").job.request, changed);
  EXPECT_EQ(control_->update_request("none", Json::object()).error().code, Code::kNotFound);
  create(request("third", "", 2));
  EXPECT_EQ(wait_for_end("third").status, "Completed");
}

TEST_F(PlatformControlTest, WhatCannotRunHereIsRefusedAtOnce) {
  open("slices: {max: 2}\nimages: [{uri: 'known:*', python: /opt/v}]\n");
  EXPECT_EQ(control_->create(request("a", "", 3)).error().code, Code::kInvalidArgument);
  auto job = request("b", "");
  job.request["InputDataConfig"] =
      Json::array({{{"ChannelName", "x"},
                    {"DataSource", {{"FileSystemDataSource", {{"FileSystemId", "fs-1"}}}}}}});
  EXPECT_NE(control_->create(job).error().message.find("fs-1"), std::string::npos);
  EXPECT_EQ(control_->create(request("no_name", "")).error().code, Code::kInvalidArgument);
  EXPECT_EQ(control_->find(JobKind::kTraining, "a").error().code, Code::kNotFound);
}

TEST_F(PlatformControlTest, AJobThatHasEndedCanBeRemovedAndItsNameUsedAgain) {
  open();
  create(request("a", "wait"));
  wait_for("a", "Training");
  EXPECT_EQ(control_->remove(JobKind::kTraining, "a").error().code, Code::kInvalidArgument);
  ASSERT_TRUE(control_->stop(JobKind::kTraining, "a"));
  wait_for_end("a");
  Status removed = control_->remove(JobKind::kTraining, "a");
  for (int i = 0; i < 3000 && !removed && removed.error().code == Code::kUnavailable; ++i) {
    std::this_thread::sleep_for(2ms);
    removed = control_->remove(JobKind::kTraining, "a");
  }
  ASSERT_TRUE(removed) << removed.error().message;
  EXPECT_FALSE(fs::exists(home_ + "/jobs/a"));
  create(request("a", ""));
  EXPECT_EQ(wait_for_end("a").status, "Completed");
}

TEST_F(PlatformControlTest, TagsAreKeptByArn) {
  open();
  auto job = request("a", "");
  job.tags = {{"k", "v"}};
  create(job);
  ASSERT_TRUE(control_->add_tags(job.arn, {{"k", "w"}, {"l", "x"}}));
  ASSERT_TRUE(control_->remove_tags(job.arn, {"l", "none"}));
  EXPECT_EQ(*control_->tags(job.arn), (std::map<std::string, std::string>{{"k", "w"}}));
  EXPECT_EQ(control_->tags("arn:none").error().code, Code::kNotFound);
  std::map<std::string, std::string> many;
  for (int i = 0; i < 51; ++i) many["t" + std::to_string(i)] = "";
  EXPECT_EQ(control_->add_tags(job.arn, many).error().code, Code::kInvalidArgument);
  EXPECT_EQ(control_->tags(job.arn)->size(), 1U);
  wait_for_end("a");
}

TEST_F(PlatformControlTest, AHomeIsOpenOnce) {
  open();
  const auto second = PlatformControl::open(options_of(home_));
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Code::kUnavailable);
}

TEST_F(PlatformControlTest, RunningJobsGoOnWithoutUsAndAreTakenOver) {
  open();
  create(request("a", "wait", 2));
  wait_for("a", "Training");
  control_.reset();
  open();
  EXPECT_EQ(view("a").secondary_status, "Training");
  ASSERT_TRUE(control_->stop(JobKind::kTraining, "a"));
  EXPECT_EQ(wait_for_end("a").status, "Stopped");
  EXPECT_EQ(runs("a"), 1);
}

// The daemon of the next test: makes the jobs that are not there yet, and ends when all have.
constexpr int kCrashJobs = 30;
std::string crash_job(int i) {
  return "crash-" + std::to_string(i);
}
JobRequest crash_request(int i) {
  const char* const kScripts[] = {"", "ms=15", "exit=4", "ms=5 lose=1:algo-1", "ms=40"};
  return request(crash_job(i), kScripts[i % 5], 1 + i % 2);
}
int run_daemon(const std::vector<std::string>& arguments) {
  if (!configure_log({.file = arguments.at(0) + "/daemon.log"})) return 1;
  auto control = PlatformControl::open(options_of(arguments.at(0), "slices: {max: 6}\n"));
  if (!control) return 2;
  for (int i = 0; i < kCrashJobs; ++i) {
    const Status created = (*control)->create(crash_request(i));
    if (!created && created.error().code != Code::kExhausted) return 3;
    std::this_thread::sleep_for(5ms);
  }
  for (int i = 0; i < kCrashJobs;) {
    const auto view = (*control)->find(JobKind::kTraining, crash_job(i));
    if (!view) return 4;
    if (view->status == "InProgress")
      std::this_thread::sleep_for(5ms);
    else
      ++i;
  }
  return 0;
}
[[maybe_unused]] const bool kDaemon = play_program("daemon", run_daemon);

TEST_F(PlatformControlTest, AStreamOfJobsSurvivesADaemonThatIsKilledAgainAndAgain) {
  int kills = 0;
  bool is_over = false;
  for (int round = 0; round < 100 && !is_over; ++round) {
    SubprocessOptions child;
    child.argv = {own_program(), "daemon", home_};
    child.env = environment();
    auto daemon = Subprocess::spawn(child);
    ASSERT_TRUE(daemon) << daemon.error().message;
    const auto exit = daemon->wait(std::chrono::milliseconds(
        20 + random_below(150, 20261130, 0, static_cast<uint64_t>(round))));
    is_over = exit.has_value();
    if (is_over) {
      ASSERT_EQ(exit->code, 0);
      break;
    }
    // The daemon alone: its supervisors are in groups of their own, and go on.
    ASSERT_TRUE(daemon->kill(SIGKILL));
    ASSERT_TRUE(daemon->wait(kPatience));
    ++kills;
  }
  open("slices: {max: 6}\n");
  for (int i = 0; i < kCrashJobs; ++i) {
    const auto created = control_->create(crash_request(i));
    EXPECT_TRUE(created || created.error().code == Code::kExhausted);
  }
  for (int i = 0; i < kCrashJobs; ++i) {
    const JobView end = wait_for_end(crash_job(i));
    EXPECT_EQ(end.status, i % 5 == 2 ? "Failed" : "Completed") << end.failure_reason;
    const bool was_lost = i % 5 == 3;
    EXPECT_EQ(runs(crash_job(i)), was_lost ? 2 : 1) << crash_job(i);
    EXPECT_EQ(end.attempt, was_lost ? 1 : 0) << crash_job(i);
  }
  EXPECT_GT(kills, 5);
}

}  // namespace
}  // namespace yard::engine
