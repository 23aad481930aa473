// The small pieces around the supervisor: folder, tail, log lines, rank plan, process, status.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/ids.h"
#include "base/subprocess.h"
#include "host/file_tail.h"
#include "host/job_folder.h"
#include "host/job_status.h"
#include "host/process.h"
#include "host/rank_log.h"
#include "host/rank_plan.h"

namespace yard::host {
namespace {

namespace fs = std::filesystem;

class FolderTest : public testing::Test {
 protected:
  FolderTest() { fs::create_directories(root_); }
  ~FolderTest() override { fs::remove_all(root_); }
  const fs::path root_ = fs::temp_directory_path() / ("yard-host-test-" + random_name(8));
};

jobs::JobSpec small_spec(const std::string& dir) {
  jobs::JobSpec spec;
  spec.name = "a";
  spec.command = {"/bin/true"};
  spec.working_dir = "/";
  spec.output_dir = dir + "/output";
  return spec;
}

TEST_F(FolderTest, AJobsNameIsTakenOnce) {
  const JobFolder folder{root_ / "jobs" / "a"};
  ASSERT_TRUE(create_job_folder(folder, small_spec(folder.dir)));
  EXPECT_TRUE(read_spec(folder));
  const Status again = create_job_folder(folder, small_spec(folder.dir));
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, Code::kInvalidArgument);
  EXPECT_TRUE(read_spec(folder));
}

TEST_F(FolderTest, AJobThatCannotBeMadeLeavesNothingBehind) {
  const JobFolder folder{root_ / "a"};
  auto spec = small_spec(folder.dir);
  std::ofstream(root_ / "file") << "x";
  spec.output_dir = root_ / "file" / "under";
  EXPECT_FALSE(create_job_folder(folder, spec));
  EXPECT_FALSE(fs::exists(folder.dir));
}

TEST_F(FolderTest, ControlWithoutSupervisorIsUnavailable) {
  const JobFolder folder{root_ / "a"};
  ASSERT_TRUE(create_job_folder(folder, small_spec(folder.dir)));
  const Status sent = send_control(folder, "stop");
  ASSERT_FALSE(sent);
  EXPECT_EQ(sent.error().code, Code::kUnavailable);
}

TEST_F(FolderTest, AFileIsReplacedWholeAndWithoutLeftovers) {
  const std::string path = root_ / "status.json";
  ASSERT_TRUE(replace_file(path, "one"));
  ASSERT_TRUE(replace_file(path, "two"));
  EXPECT_EQ(*read_file(path), "two");
  EXPECT_EQ(std::distance(fs::directory_iterator(root_), fs::directory_iterator()), 1);
  EXPECT_FALSE(replace_file(root_ / "no" / "such", "x"));
}

TEST_F(FolderTest, ATailGivesWholeLinesOnce) {
  const std::string path = root_ / "beats";
  FileTail tail(path);
  EXPECT_TRUE(tail.read_lines().empty());
  std::ofstream file(path, std::ios::app);
  file << "one\ntwo\nthr" << std::flush;
  EXPECT_EQ(tail.read_lines(), (std::vector<std::string>{"one", "two"}));
  EXPECT_TRUE(tail.inside_line());
  EXPECT_TRUE(tail.read_lines().empty());
  file << "ee\n\n" << std::flush;
  EXPECT_EQ(tail.read_lines(), (std::vector<std::string>{"three", ""}));
  EXPECT_FALSE(tail.inside_line());
}

TEST_F(FolderTest, ATailDropsALineThatIsTooLongAndGoesOn) {
  const std::string path = root_ / "beats";
  std::ofstream(path) << std::string(3 << 20, 'x') << "\nnext\n";
  FileTail tail(path);
  EXPECT_EQ(tail.read_lines(), (std::vector<std::string>{"next"}));
}

TEST(LinePrefixerTest, LinesAreWholeHoweverTheBytesArrive) {
  const std::string text = "a\n\nbc\nd";
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    LinePrefixer prefixer(3);
    std::string out = prefixer.take(text.substr(0, cut));
    out += prefixer.take(text.substr(cut));
    out += prefixer.finish();
    EXPECT_EQ(out, "[rank 3] a\n[rank 3] \n[rank 3] bc\n[rank 3] d\n") << cut;
    EXPECT_EQ(prefixer.finish(), "");
  }
}

TEST(LinePrefixerTest, AGiantLineIsBroken) {
  LinePrefixer prefixer(0);
  std::string out = prefixer.take(std::string(40'000, 'x'));
  out += prefixer.finish();
  EXPECT_EQ(std::ranges::count(out, '\n'), 3);
  EXPECT_EQ(std::ranges::count(out, 'x'), 40'000);
}

TEST(RankCoresTest, EveryCoreIsGivenOnceAndSharesAreEven) {
  for (int core_count = 1; core_count <= 9; ++core_count) {
    std::vector<int> cores;
    for (int i = 0; i < core_count; ++i) cores.push_back(10 + i);
    for (int ranks = 1; ranks <= core_count; ++ranks) {
      std::vector<int> together;
      for (int rank = 0; rank < ranks; ++rank) {
        const auto share = rank_cores(cores, ranks, rank);
        EXPECT_GE(share.size(), cores.size() / static_cast<size_t>(ranks));
        EXPECT_LE(share.size(), cores.size() / static_cast<size_t>(ranks) + 1);
        together.insert(together.end(), share.begin(), share.end());
      }
      EXPECT_EQ(together, cores);
    }
  }
  EXPECT_EQ(rank_cores({4, 5}, 3, 2), (std::vector{4, 5}));
  EXPECT_TRUE(rank_cores({}, 2, 1).empty());
}

TEST(RankEnvironmentTest, TheRanksOwnVariablesWinAndThreadsAreTheUsers) {
  jobs::JobSpec spec = small_spec("/j");
  spec.ranks = 2;
  spec.env = {{"A", "spec"}, {"RANK", "7"}};
  const AttemptPlan plan{.attempt = 3, .master_port = 4000, .job_dir = "/j"};
  auto env = rank_environment({{"A", "base"}, {"B", "base"}}, spec, plan, 1, 8);
  EXPECT_EQ(env["A"], "spec");
  EXPECT_EQ(env["B"], "base");
  EXPECT_EQ(env["RANK"], "1");
  EXPECT_EQ(env["OMP_NUM_THREADS"], "4");
  EXPECT_EQ(env["TORCHELASTIC_RESTART_COUNT"], "3");
  EXPECT_EQ(env["YARD_HEARTBEAT"], "/j/heartbeats/rank-1.jsonl");
  env = rank_environment({{"OMP_NUM_THREADS", "3"}}, spec, plan, 1, 1);
  EXPECT_EQ(env["OMP_NUM_THREADS"], "3");
  env = rank_environment({}, spec, plan, 1, 1);
  EXPECT_EQ(env["OMP_NUM_THREADS"], "1");
}

TEST(ProcessTest, AProcessIsItselfAndNotItsSuccessor) {
  const ProcessId self = identify_self();
  EXPECT_EQ(self.pid, ::getpid());
  EXPECT_GT(self.start_ticks, 0U);
  EXPECT_TRUE(is_alive(self));
  EXPECT_FALSE(is_alive({self.pid, self.start_ticks + 1}));
  EXPECT_FALSE(is_alive({}));
}

TEST(ProcessTest, AZombieDoesNotLive) {
  auto child = Subprocess::spawn({.argv = {"/bin/true"}, .env = environment()});
  ASSERT_TRUE(child);
  ASSERT_TRUE(child->wait(std::chrono::seconds(60)));
  EXPECT_FALSE(identify(child->pid()));
}

TEST(ProcessTest, LeftoversOfAJobAreEndedAndNobodyElse) {
  const std::string job = "/nowhere/job-" + random_name(8);
  auto mine = Subprocess::spawn(
      {.argv = {"sleep", "1000"}, .env = {{"YARD_JOB_DIR", job}, {"PATH", "/usr/bin:/bin"}}});
  auto other = Subprocess::spawn(
      {.argv = {"sleep", "1000"}, .env = {{"YARD_JOB_DIR", job + "2"}, {"PATH", "/usr/bin:/bin"}}});
  ASSERT_TRUE(mine && other);
  EXPECT_EQ(kill_leftovers(job), 1);
  const auto exit = mine->wait(std::chrono::seconds(60));
  ASSERT_TRUE(exit);
  EXPECT_EQ(exit->signal, SIGKILL);
  EXPECT_TRUE(identify(other->pid()));
}

TEST_F(FolderTest, AStatusIsReadBack) {
  JobStatus status;
  status.name = "a";
  status.state = jobs::JobState::kRestarting;
  status.reason = "because";
  status.supervisor = {4, 5};
  status.ranks = {{.rank = 0, .pid = 9, .alive = true}, {.rank = 1, .code = 137, .signal = 9}};
  status.global_step = 12;
  ASSERT_TRUE(replace_file(root_ / "status.json", to_json(status).dump()));
  const auto back = read_status(root_ / "status.json");
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(to_json(*back), to_json(status));
  ASSERT_TRUE(replace_file(root_ / "status.json", "{\"name\":"));
  EXPECT_FALSE(read_status(root_ / "status.json"));
  EXPECT_EQ(read_status(root_ / "none").error().code, Code::kNotFound);
}

}  // namespace
}  // namespace yard::host
