// Real processes: every rank is a small shell script. None of the tests depends on how fast
// anything is; what could wait for ever is killed by the supervisor under test.
#include "host/supervisor.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "base/file.h"
#include "base/ids.h"
#include "base/subprocess.h"
#include "host/job_folder.h"
#include "host/job_status.h"
#include "host/process.h"
#include "jobs/ledger.h"
#include "jobs/supervisor_event.h"

namespace yard::host {
namespace {

namespace fs = std::filesystem;
using jobs::JobEvent;
using jobs::JobState;
using Kind = jobs::SupervisorEventKind;

// $ATTEMPT, $R: which attempt and rank this is. beat '"event":"step",...' sends a heartbeat.
constexpr char kPrelude[] = R"sh(
ATTEMPT=$TORCHELASTIC_RESTART_COUNT
R=$RANK
beat() { echo "{\"t\":$(date +%s.%N),$1}" >> "$YARD_HEARTBEAT"; }
step() { beat "\"event\":\"step\",\"step\":$1,\"global_step\":$1,\"global_steps\":9,\"step_s\":0"; }
)sh";

class SupervisorTest : public testing::Test {
 protected:
  SupervisorTest() {
    root_ = fs::temp_directory_path() / ("yard-supervisor-test-" + random_name(8));
    folder_.dir = root_ / "job";
    spec_.name = "test";
    spec_.ranks = 2;
    spec_.working_dir = "/";
    spec_.output_dir = folder_.output();
    spec_.stop_grace_s = 60;
  }
  ~SupervisorTest() override { fs::remove_all(root_); }

  SupervisorResult run(const std::string& script) {
    spec_.command = {"/bin/sh", "-c", kPrelude + script};
    return run_command();
  }

  SupervisorResult run_command() {
    const Status created = create_job_folder(folder_, spec_);
    EXPECT_TRUE(created) << created.error().message;
    return resume();
  }

  SupervisorResult resume() {
    transitions_.clear();
    SupervisorOptions options;
    options.job_dir = folder_.dir;
    options.env = environment();
    options.stop = stop_.token();
    options.fault_grace = std::chrono::seconds(60);
    if (kill_at_once_) options.fault_grace = std::chrono::milliseconds(0);
    options.record = [this](JobEvent event, int, const std::string&) {
      transitions_.push_back(event);
      return Status(Ok{});
    };
    const auto result = supervise(options);
    EXPECT_TRUE(result) << result.error().message;
    return result ? *result : SupervisorResult{};
  }

  std::vector<jobs::SupervisorEvent> events(Kind kind) const {
    std::vector<jobs::SupervisorEvent> out;
    std::ifstream file(folder_.events());
    for (std::string line; std::getline(file, line);) {
      const auto event = jobs::parse_supervisor_event(line);
      EXPECT_TRUE(event) << line;
      if (event && event->kind == kind) out.push_back(*event);
    }
    return out;
  }
  JobStatus status() const {
    const auto got = read_status(folder_.status());
    EXPECT_TRUE(got) << got.error().message;
    return got ? *got : JobStatus{};
  }
  jobs::Ledger ledger() const {
    const auto json = parse_json(text(folder_.ledger()), "ledger");
    const auto got = jobs::ledger_from_json(*json, "ledger");
    EXPECT_TRUE(got) << got.error().message;
    return got ? *got : jobs::Ledger{};
  }
  static std::string text(const std::string& path) {
    const auto got = read_file(path);
    EXPECT_TRUE(got) << got.error().message;
    return got ? *got : "";
  }
  // A process that was sent SIGKILL needs a moment to be gone.
  static bool is_gone_soon(int pid) {
    for (int i = 0; i < 2000 && identify(pid); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return !identify(pid);
  }

  fs::path root_;
  JobFolder folder_;
  jobs::JobSpec spec_;
  StopSource stop_;
  bool kill_at_once_ = true;
  std::vector<JobEvent> transitions_;
};

TEST_F(SupervisorTest, RanksGetTheDocumentedEnvironmentAndTheirOutputIsKept) {
  spec_.env = {{"COLOUR", "blue"}};
  const auto result = run(
      "echo out $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $GROUP_RANK $MASTER_ADDR $COLOUR\n"
      "echo err $TORCHELASTIC_RUN_ID $TORCHELASTIC_RESTART_COUNT >&2\n"
      "[ \"$MASTER_PORT\" -gt 0 ] && [ -d \"$YARD_OUTPUT_DIR\" ] && [ -d \"$YARD_JOB_DIR/logs\" "
      "]\n");
  EXPECT_EQ(result.state, JobState::kSucceeded) << result.reason;
  EXPECT_EQ(text(folder_.rank_log(1)), "out 1/2 1/2 0 127.0.0.1 blue\nerr test 0\n");
  const std::string all = text(folder_.job_log());
  EXPECT_NE(all.find("[rank 0] out 0/2 0/2 0 127.0.0.1 blue\n"), std::string::npos) << all;
  EXPECT_NE(all.find("[rank 1] err test 0\n"), std::string::npos) << all;
  EXPECT_EQ(transitions_, (std::vector{JobEvent::kRanksStarted, JobEvent::kAllDone}));
  EXPECT_EQ(status().state, JobState::kSucceeded);
  EXPECT_TRUE(ledger().complete);
}

TEST_F(SupervisorTest, ARankThatIsKilledRestartsAllOfThem) {
  const auto result =
      run("[ $ATTEMPT = 1 ] && exit 0\n"
          "[ $R = 1 ] && kill -9 $$\n"
          "exec sleep 1000\n");
  EXPECT_EQ(result.state, JobState::kSucceeded) << result.reason;
  EXPECT_EQ(transitions_, (std::vector{JobEvent::kRanksStarted, JobEvent::kRankFault,
                                       JobEvent::kRanksStarted, JobEvent::kAllDone}));
  const auto faults = events(Kind::kFault);
  ASSERT_EQ(faults.size(), 1U);
  EXPECT_EQ(faults[0].rank, 1);
  EXPECT_EQ(faults[0].cause, "rank_fault");
  ASSERT_EQ(events(Kind::kRelaunched).size(), 1U);
  EXPECT_EQ(status().restarts, 1);
  EXPECT_EQ(ledger().restarts, 1);
}

TEST_F(SupervisorTest, EachAttemptHasItsOwnPort) {
  run("[ $ATTEMPT = 0 ] && kill -9 $$\nexit 0\n");
  const auto attempts = events(Kind::kAttemptStarted);
  ASSERT_EQ(attempts.size(), 2U);
  EXPECT_GT(attempts[0].master_port, 0);
  EXPECT_NE(attempts[0].master_port, attempts[1].master_port);
}

TEST_F(SupervisorTest, TheProgramsOwnFaultIsNotRetried) {
  const auto result = run("exit 2");
  EXPECT_EQ(result.state, JobState::kFailed);
  EXPECT_NE(result.reason.find("ended with exit code 2"), std::string::npos) << result.reason;
  EXPECT_EQ(events(Kind::kAttemptStarted).size(), 1U);
  EXPECT_EQ(status().exit_code, 2);
}

TEST_F(SupervisorTest, AnOwnFaultIsFoundBehindThePeerThatLostIt) {
  kill_at_once_ = false;
  const auto result =
      run("[ $R = 0 ] && { while [ ! -e $YARD_JOB_DIR/ready ]; do sleep 0.01; done; exit 6; }\n"
          "trap 'exit 4' TERM\n"
          "touch $YARD_JOB_DIR/ready\n"
          "sleep 1000 & wait\n");
  EXPECT_EQ(result.state, JobState::kFailed);
  EXPECT_EQ(status().exit_code, 4);
}

TEST_F(SupervisorTest, ALostStoreIsRetriedWithinItsOwnBudget) {
  spec_.retries = {.rank_fault = 0, .unavailable = 2};
  const auto result = run("exit 6");
  EXPECT_EQ(result.state, JobState::kFailed);
  EXPECT_EQ(events(Kind::kAttemptStarted).size(), 3U);
  EXPECT_NE(result.reason.find("2 of 2 restarts"), std::string::npos) << result.reason;
}

TEST_F(SupervisorTest, ThreeAttemptsWithoutProgressAreEnough) {
  const auto result = run("step 1\n[ $R = 0 ] && kill -9 $$\nexec sleep 1000\n");
  EXPECT_EQ(result.state, JobState::kFailed);
  EXPECT_NE(result.reason.find("no progress"), std::string::npos) << result.reason;
  // The first attempt did reach a new step.
  EXPECT_EQ(events(Kind::kAttemptStarted).size(), 4U);
}

TEST_F(SupervisorTest, ProgressEarnsAnotherAttempt) {
  const auto result = run("step $((ATTEMPT + 1))\n[ $ATTEMPT = 5 ] && exit 0\nkill -9 $$\n");
  EXPECT_EQ(result.state, JobState::kSucceeded) << result.reason;
  EXPECT_EQ(status().restarts, 5);
  EXPECT_EQ(status().global_step, 6);
  EXPECT_EQ(events(Kind::kRecovered).size(), 5U);
}

TEST_F(SupervisorTest, AStopRequestLetsRanksSaveTheirState) {
  const auto result =
      run("trap 'echo saved; exit 8' TERM\n"
          "echo ready > $YARD_JOB_DIR/ready-$R\n"
          "[ $R = 0 ] && { while [ ! -s $YARD_JOB_DIR/ready-1 ]; do sleep 0.01; done\n"
          "                echo stop > $YARD_JOB_DIR/control; }\n"
          "sleep 1000 & wait\n");
  EXPECT_EQ(result.state, JobState::kStopped);
  EXPECT_EQ(text(folder_.rank_log(0)), "saved\n");
  EXPECT_EQ(text(folder_.rank_log(1)), "saved\n");
  EXPECT_EQ(transitions_,
            (std::vector{JobEvent::kRanksStarted, JobEvent::kStopAsked, JobEvent::kRanksStopped}));
}

TEST_F(SupervisorTest, AStopTokenDoesTheSame) {
  stop_.request();
  const auto result = run("exec sleep 1000");
  EXPECT_EQ(result.state, JobState::kStopped);
  EXPECT_EQ(events(Kind::kStopAsked).size(), 1U);
}

TEST_F(SupervisorTest, ARankThatIgnoresTheStopIsKilledAfterTheGrace) {
  spec_.stop_grace_s = 0.05;
  const auto result =
      run("trap '' TERM\n[ $R = 0 ] && echo stop > $YARD_JOB_DIR/control\n"
          "sleep 1000\n");
  EXPECT_EQ(result.state, JobState::kStopped);
}

TEST_F(SupervisorTest, AKillRequestDoesNotWaitForTheGrace) {
  spec_.stop_grace_s = 86'400;
  const auto result =
      run("trap '' TERM\n[ $R = 0 ] && echo kill > $YARD_JOB_DIR/control\n"
          "sleep 1000\n");
  EXPECT_EQ(result.state, JobState::kStopped);
}

TEST_F(SupervisorTest, RanksThatFinishDuringTheStopHaveSucceeded) {
  const auto result =
      run("trap 'exit 0' TERM\n"
          "echo ready > $YARD_JOB_DIR/ready-$R\n"
          "while [ ! -s $YARD_JOB_DIR/ready-$((1 - R)) ]; do sleep 0.01; done\n"
          "[ $R = 0 ] && echo stop > $YARD_JOB_DIR/control\n"
          "sleep 1000 & wait\n");
  EXPECT_EQ(result.state, JobState::kSucceeded);
}

TEST_F(SupervisorTest, AProgramThatIsNotThereFailsTheJobAtOnce) {
  spec_.command = {"/no/such/program"};
  const auto result = run_command();
  EXPECT_EQ(result.state, JobState::kFailed);
  EXPECT_NE(result.reason.find("starting rank 0: /no/such/program"), std::string::npos)
      << result.reason;
  EXPECT_EQ(status().exit_code, 3);
  EXPECT_EQ(transitions_, (std::vector{JobEvent::kUserFault}));
}

TEST_F(SupervisorTest, AFloodOfOutputIsKeptWholeAndHidesNoDeath) {
  spec_.ranks = 1;
  const auto result =
      run("[ $ATTEMPT = 1 ] && exit 0\n"
          "yes 0123456 | head -c 8000000\n"
          "kill -9 $$\n");
  EXPECT_EQ(result.state, JobState::kSucceeded) << result.reason;
  EXPECT_EQ(fs::file_size(folder_.rank_log(0)), 8'000'000U);
  EXPECT_EQ(fs::file_size(folder_.job_log()), 1'000'000U * 17);
}

TEST_F(SupervisorTest, BinaryOutputAndGiantLinesArriveByteForByte) {
  spec_.ranks = 1;
  run("printf '\\000\\377\\r\\n'; head -c 100000 /dev/zero; printf 'end'");
  const std::string own = text(folder_.rank_log(0));
  ASSERT_EQ(own.size(), 4 + 100'000 + 3U);
  EXPECT_EQ(own.substr(0, 4), std::string("\0\xff\r\n", 4));
  const std::string all = text(folder_.job_log());
  EXPECT_EQ(all.back(), '\n');
  EXPECT_LT(all.size(), 101'000U);
}

TEST_F(SupervisorTest, WhatARankLeavesRunningIsEnded) {
  spec_.ranks = 1;
  run("sleep 1000 & echo $! > $YARD_JOB_DIR/left; exit 0");
  EXPECT_TRUE(is_gone_soon(std::stoi(text(folder_.dir + "/left"))));
}

TEST_F(SupervisorTest, ChaosKillsOneRankOnceAtItsStep) {
  spec_.chaos = jobs::Chaos{.kill_rank = 1, .after_step = 2};
  const auto result =
      run("[ $ATTEMPT = 1 ] && { step 2; step 3; exit 0; }\n"
          "step 1; step 2\n"
          "exec sleep 1000\n");
  EXPECT_EQ(result.state, JobState::kSucceeded) << result.reason;
  const auto kills = events(Kind::kChaosKill);
  ASSERT_EQ(kills.size(), 1U);
  EXPECT_EQ(kills[0].rank, 1);
  EXPECT_EQ(kills[0].global_step, 2);
  EXPECT_EQ(events(Kind::kFault)[0].rank, 1);
}

TEST_F(SupervisorTest, ALineCutByADeathDoesNotSpoilTheNextAttempt) {
  spec_.ranks = 1;
  const auto result =
      run("[ $ATTEMPT = 1 ] && { step 1; exit 0; }\n"
          "printf '{\"t\":12,\"eve' >> $YARD_HEARTBEAT\n"
          "kill -9 $$\n");
  EXPECT_EQ(result.state, JobState::kSucceeded);
  EXPECT_EQ(status().global_step, 1);
}

TEST_F(SupervisorTest, AnotherSupervisorGoesOnCountingAttempts) {
  ASSERT_EQ(run("[ $ATTEMPT = 0 ] && { step 4; exit 8; }\necho $ATTEMPT\nstep 5\n").state,
            JobState::kStopped);
  const double wall_s = ledger().wall_s;
  ASSERT_EQ(resume().state, JobState::kSucceeded);
  EXPECT_EQ(text(folder_.rank_log(0)), "1\n");
  EXPECT_EQ(status().global_step, 5);
  EXPECT_EQ(status().restarts, 0);
  EXPECT_GT(ledger().wall_s, wall_s);
}

TEST_F(SupervisorTest, OneJobHasOneSupervisor) {
  spec_.command = {"/bin/true"};
  ASSERT_TRUE(create_job_folder(folder_, spec_));
  const UniqueFd other(::open(folder_.events().c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  ASSERT_EQ(::flock(other.get(), LOCK_EX), 0);
  SupervisorOptions options;
  options.job_dir = folder_.dir;
  const auto result = supervise(options);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, Code::kUnavailable);
}

TEST_F(SupervisorTest, AFolderWithoutAJobIsNotFound) {
  SupervisorOptions options;
  options.job_dir = folder_.dir;
  const auto result = supervise(options);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, Code::kNotFound);
}

TEST_F(SupervisorTest, ARecorderThatFailsDoesNotStopTheTraining) {
  spec_.command = {"/bin/true"};
  ASSERT_TRUE(create_job_folder(folder_, spec_));
  SupervisorOptions options;
  options.job_dir = folder_.dir;
  options.record = [](JobEvent, int, const std::string&) {
    return Status(Error{Code::kExhausted, "disk full"});
  };
  const auto result = supervise(options);
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(result->state, JobState::kSucceeded);
}

}  // namespace
}  // namespace yard::host
