#include "pipeline/rank_launcher.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>

#include "base/file.h"
#include "base/subprocess.h"

namespace yard::pipeline {
namespace {

class RankLauncherTest : public ::testing::Test {
 protected:
  RankLauncherTest() {
    std::string path = (std::filesystem::temp_directory_path() / "yard-launch-XXXXXX").string();
    YARD_CHECK(::mkdtemp(path.data()) != nullptr);
    dir_ = path;
    options_.ml_dir = dir_;
    options_.job_dir = dir_ + "/checkpoints";
    options_.env = environment();
    options_.env["TRAINING_JOB_NAME"] = "job";
    options_.ranks_per_host = 2;
    hosts({"algo-1", "algo-2"}, "algo-2");
  }
  ~RankLauncherTest() override { std::filesystem::remove_all(dir_); }

  void hosts(const std::vector<std::string>& names, const std::string& own) {
    YARD_CHECK(make_directories(dir_ + "/input/config"));
    YARD_CHECK(write_file_atomic(dir_ + "/input/config/resourceconfig.json",
                                 Json{{"current_host", own}, {"hosts", names}}.dump()));
  }
  Status launch(const std::string& script) {
    options_.command = {"/bin/sh", "-c", script};
    return launch_ranks(options_);
  }
  std::string text(const std::string& name) {
    const auto read = read_file(dir_ + "/" + name);
    return read ? *read : "";
  }

  std::string dir_;
  LaunchOptions options_;
};

TEST_F(RankLauncherTest, RanksAreNumberedOverTheHosts) {
  ASSERT_TRUE(
      launch("echo $RANK $LOCAL_RANK $WORLD_SIZE $MASTER_ADDR $MASTER_PORT "
             "> $YARD_JOB_DIR/$RANK.txt"));
  const std::string port = std::to_string(port_of_job("job"));
  EXPECT_EQ(text("checkpoints/2.txt"), "2 0 4 algo-1 " + port + "\n");
  EXPECT_EQ(text("checkpoints/3.txt"), "3 1 4 algo-1 " + port + "\n");
}

TEST_F(RankLauncherTest, TheRankThatFailsFirstIsNamed) {
  const Status done = launch("[ $LOCAL_RANK = 1 ] && exit 4; exit 0");
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, Code::kCorrupt);
  EXPECT_EQ(text("output/failure"), "rank 3 on algo-2 ended with exit code 4\n");
}

TEST_F(RankLauncherTest, ADeathBySignalIsUnavailable) {
  const Status done = launch("[ $LOCAL_RANK = 0 ] && kill -9 $$; exit 0");
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, Code::kUnavailable);
  EXPECT_EQ(text("output/failure"), "rank 2 on algo-2 was killed by signal 9\n");
}

// A rank that tells of stages as a trainer does, and saves when it is asked.
constexpr const char* kTrainer =
    "trap 'exit 8' TERM; tell() { echo \"{\\\"t\\\":1,$1}\" >> $YARD_HEARTBEAT; };"
    "tell '\"event\":\"stage\",\"stage\":\"one\",\"stage_index\":0';"
    "tell '\"event\":\"stage\",\"stage\":\"two\",\"stage_index\":1';"
    "i=0; while [ $i -lt 600 ]; do sleep 0.05; i=$((i+1)); done";

TEST_F(RankLauncherTest, RanksAreToldWhichStageBelongsToAnotherJob) {
  options_.stop_at_stage = 2;
  ASSERT_TRUE(launch("echo $YARD_STOP_AT_STAGE > $YARD_JOB_DIR/$RANK.txt"));
  EXPECT_EQ(text("checkpoints/3.txt"), "2\n");
}

TEST_F(RankLauncherTest, RanksEndWhereTheStageOfAnotherJobBegins) {
  options_.stop_at_stage = 1;
  EXPECT_TRUE(launch(kTrainer));
  EXPECT_EQ(text("output/failure"), "");
}

TEST_F(RankLauncherTest, ARankThatWasAskedByNobodyAndStopsIsAFailure) {
  const Status done = launch("exit 8");
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, Code::kCancelled);
}

TEST_F(RankLauncherTest, ARankIsKilledOnPurposeOnce) {
  options_.ranks_per_host = 1;
  options_.kill = RankKill{.rank = 1, .after_step = 3};
  const std::string steps =
      "for s in 1 2 3; do echo \"{\\\"t\\\":1,\\\"event\\\":\\\"step\\\",\\\"global_step\\\":$s}\" "
      ">> $YARD_HEARTBEAT; done;";
  const Status killed =
      launch(steps + "i=0; while [ $i -lt 600 ]; do sleep 0.05; i=$((i+1)); done");
  ASSERT_FALSE(killed);
  EXPECT_EQ(killed.error().code, Code::kUnavailable);
  EXPECT_NE(text("checkpoints/launches/algo-2.jsonl").find("chaos_kill"), std::string::npos);
  EXPECT_TRUE(launch(steps)) << "the next attempt is left alone";
}

// Rank 1 dies at its first start; rank 0 waits for the next generation, as a trainer does.
constexpr const char* kDiesOnce =
    "echo $$ $RANK $TORCHELASTIC_RESTART_COUNT >> $YARD_JOB_DIR/starts-$RANK;"
    "[ $RANK$TORCHELASTIC_RESTART_COUNT = 10 ] && kill -9 $$;"
    "i=0; while [ $RANK = 0 ] && [ $i -lt 1200 ] && [ $(cat $YARD_GENERATION_FILE) = 0 ];"
    "do sleep 0.05; i=$((i+1)); done; cat $YARD_GENERATION_FILE > $YARD_JOB_DIR/saw-$RANK";

TEST_F(RankLauncherTest, ARankThatDiesStartsAgainAndTheOthersStay) {
  hosts({"algo-1"}, "algo-1");
  options_.restarts = 1;
  const Status done = launch(kDiesOnce);
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(text("checkpoints/saw-0"), "1\n");
  const std::string kept = text("checkpoints/starts-0");
  EXPECT_EQ(std::ranges::count(kept, '\n'), 1) << kept;
  const std::string died = text("checkpoints/starts-1");
  EXPECT_EQ(std::ranges::count(died, '\n'), 2) << died;
  EXPECT_TRUE(died.ends_with(" 1 1\n")) << died;
  EXPECT_NE(text("checkpoints/launches/algo-1.jsonl").find("rank_restarted"), std::string::npos);
}

TEST_F(RankLauncherTest, ARankThatLeavesForAnothersDeathCostsNoRestartOfItsOwn) {
  hosts({"algo-1"}, "algo-1");
  options_.restarts = 1;
  const Status done =
      launch(std::string("[ $RANK$TORCHELASTIC_RESTART_COUNT = 00 ] && while [ $(cat "
                         "$YARD_GENERATION_FILE) = 0 ]; do sleep 0.05; done &&  exit 6;") +
             kDiesOnce);
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_TRUE(text("checkpoints/starts-0").ends_with(" 0 1\n"));
}

TEST_F(RankLauncherTest, WhenRestartsAreUsedUpOrNothingCanComeOfOneTheJobFails) {
  hosts({"algo-1"}, "algo-1");
  options_.restarts = 2;
  options_.ranks_per_host = 1;
  const Status died = launch("echo x >> $YARD_JOB_DIR/starts; kill -9 $$");
  ASSERT_FALSE(died);
  EXPECT_EQ(died.error().code, Code::kUnavailable);
  EXPECT_EQ(text("checkpoints/starts"), "x\nx\nx\n");
  EXPECT_EQ(launch("echo y >> $YARD_JOB_DIR/faults; exit 2").error().code, Code::kInvalidArgument);
  EXPECT_EQ(text("checkpoints/faults"), "y\n");
  // Of several hosts the platform starts all again.
  hosts({"algo-1", "algo-2"}, "algo-2");
  EXPECT_FALSE(launch("echo z >> $YARD_JOB_DIR/several; kill -9 $$"));
  EXPECT_EQ(text("checkpoints/several"), "z\n");
}

TEST_F(RankLauncherTest, TheFirstHostHandsOverTheExportedModel) {
  options_.ranks_per_host = 1;
  hosts({"algo-1"}, "algo-1");
  ASSERT_TRUE(
      launch("mkdir -p $YARD_JOB_DIR/output/pipeline/unet;"
             "echo weights > $YARD_JOB_DIR/output/pipeline/unet/w"));
  EXPECT_EQ(text("model/unet/w"), "weights\n");
}

TEST_F(RankLauncherTest, OutsideOfAJobItSaysSo) {
  std::filesystem::remove_all(dir_ + "/input");
  const Status done = launch("exit 0");
  ASSERT_FALSE(done);
  EXPECT_NE(done.error().message.find("runs inside a training job"), std::string::npos);
  EXPECT_FALSE(host_place_from({{"hosts", {"a", "b"}}, {"current_host", "c"}}, "r"));
  EXPECT_FALSE(host_place_from(Json::array(), "r"));
}

}  // namespace
}  // namespace yard::pipeline
