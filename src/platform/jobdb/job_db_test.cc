#include "jobdb/job_db.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "base/file.h"
#include "base/ids.h"
#include "base/random.h"
#include "base/testing/fake_clock.h"
#include "jobdb/migrations_internal.h"

namespace yard::jobdb {
namespace {

namespace fs = std::filesystem;
using jobs::Action;
using jobs::JobEvent;
using jobs::JobState;

class JobDbTest : public testing::Test {
 protected:
  JobDbTest() { fs::create_directories(root_); }
  ~JobDbTest() override { fs::remove_all(root_); }

  JobDb open() {
    auto db = JobDb::open(path_, clock_);
    EXPECT_TRUE(db) << db.error().message;
    return *std::move(db);
  }
  static void apply(JobDb& db, JobEvent event, int retries_left = 0, std::string detail = "") {
    const auto got = db.apply({"a", event, retries_left, std::move(detail)});
    ASSERT_TRUE(got) << got.error().message;
  }
  Code code_of_opening() {
    const auto db = JobDb::open(path_, clock_);
    EXPECT_FALSE(db);
    return db ? Code::kInternal : db.error().code;
  }
  void raw(const char* sql) {
    auto connection = internal::Connection::open(path_);
    ASSERT_TRUE(connection);
    const Status done = connection->execute(sql);
    ASSERT_TRUE(done) << done.error().message;
  }

  const fs::path root_ = fs::temp_directory_path() / ("yard-jobdb-test-" + random_name(8));
  const std::string path_ = root_ / "yard.db";
  FakeClock clock_;
};

TEST_F(JobDbTest, AJobKeepsItsCourse) {
  JobDb db = open();
  ASSERT_TRUE(db.create_job("a", "/jobs/a", {.pid = 7, .start_ticks = 70}));
  apply(db, JobEvent::kPlaced);
  ASSERT_TRUE(db.set_host("a", "host-0"));
  ASSERT_TRUE(db.set_owner("a", {.pid = 8, .start_ticks = 80}));
  apply(db, JobEvent::kRanksStarted);
  clock_.advance(std::chrono::seconds(5));
  apply(db, JobEvent::kRankFault, 3, "rank 1 was killed");
  apply(db, JobEvent::kRanksStarted);
  apply(db, JobEvent::kAllDone);

  JobDb reopened = open();
  const auto job = reopened.job("a");
  ASSERT_TRUE(job) << job.error().message;
  EXPECT_EQ(job->state, JobState::kSucceeded);
  EXPECT_EQ(job->dir, "/jobs/a");
  EXPECT_EQ(job->host, "host-0");
  EXPECT_EQ(job->owner.pid, 8);
  EXPECT_EQ(job->owner.start_ticks, 80U);
  EXPECT_EQ(job->attempt_count, 2);
  EXPECT_EQ(job->updated_t - job->created_t, 5);
  const auto transitions = reopened.transitions("a");
  ASSERT_EQ(transitions->size(), 5U);
  EXPECT_EQ((*transitions)[2].from, JobState::kRunning);
  EXPECT_EQ((*transitions)[2].event, JobEvent::kRankFault);
  EXPECT_EQ((*transitions)[2].to, JobState::kRestarting);
  EXPECT_EQ((*transitions)[2].action, Action::kRelaunchRanks);
  EXPECT_EQ((*transitions)[2].detail, "rank 1 was killed");
  const auto attempts = reopened.attempts("a");
  ASSERT_EQ(attempts->size(), 2U);
  EXPECT_EQ((*attempts)[0].outcome, "rank_fault");
  EXPECT_EQ((*attempts)[0].ended_t - (*attempts)[0].started_t, 5);
  EXPECT_EQ((*attempts)[1].number, 1);
  EXPECT_EQ((*attempts)[1].outcome, "all_done");
}

TEST_F(JobDbTest, ARefusedEventChangesNothing) {
  JobDb db = open();
  ASSERT_TRUE(db.create_job("a", "/jobs/a", {}));
  const auto got = db.apply({"a", JobEvent::kAllDone, 0, ""});
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().code, Code::kInvalidArgument);
  EXPECT_EQ(db.job("a")->state, JobState::kQueued);
  EXPECT_TRUE(db.transitions("a")->empty());
}

TEST_F(JobDbTest, UnknownJobsAreNotFoundAndNamesAreTakenOnce) {
  JobDb db = open();
  EXPECT_EQ(db.job("a").error().code, Code::kNotFound);
  EXPECT_EQ(db.apply({"a", JobEvent::kPlaced, 0, ""}).error().code, Code::kNotFound);
  ASSERT_TRUE(db.create_job("a", "/jobs/a", {}));
  EXPECT_EQ(db.create_job("a", "/elsewhere", {}).error().code, Code::kInvalidArgument);
  EXPECT_EQ(db.jobs()->size(), 1U);
  apply(db, JobEvent::kPlaced);
  ASSERT_TRUE(db.remove_job("a"));
  EXPECT_TRUE(db.jobs()->empty());
  EXPECT_TRUE(db.pending_actions()->empty());
}

TEST_F(JobDbTest, AnActionIsPendingUntilItIsKnownToBeDone) {
  JobDb db = open();
  ASSERT_TRUE(db.create_job("a", "/jobs/a", {}));
  apply(db, JobEvent::kPlaced);
  // As after a crash between the commit and the action.
  auto pending = open().pending_actions();
  ASSERT_EQ(pending->size(), 1U);
  EXPECT_EQ((*pending)[0].job, "a");
  EXPECT_EQ((*pending)[0].action, Action::kStartSupervisor);
  apply(db, JobEvent::kRanksStarted);
  EXPECT_TRUE(db.pending_actions()->empty());
  apply(db, JobEvent::kAllDone);
  ASSERT_EQ(db.pending_actions()->size(), 1U);
  ASSERT_TRUE(db.mark_action_done("a"));
  EXPECT_TRUE(db.pending_actions()->empty());
}

TEST_F(JobDbTest, TextIsStoredAsItIs) {
  JobDb db = open();
  const std::string odd = "'; DROP TABLE jobs; -- \xc3\xa9\n\"";
  ASSERT_TRUE(db.create_job("a", odd, {}));
  EXPECT_EQ(db.job("a")->dir, odd);
  EXPECT_EQ(db.job(odd).error().code, Code::kNotFound);
}

TEST_F(JobDbTest, ADatabaseOfANewerVersionIsLeftAlone) {
  open();
  raw("PRAGMA user_version = 999");
  const auto db = JobDb::open(path_, clock_);
  ASSERT_FALSE(db);
  EXPECT_EQ(db.error().code, Code::kInvalidArgument);
  EXPECT_NE(db.error().message.find("newer trainyard"), std::string::npos) << db.error().message;
}

TEST_F(JobDbTest, SomebodyElsesDatabaseIsNotTouched) {
  raw("CREATE TABLE theirs (x)");
  EXPECT_EQ(code_of_opening(), Code::kCorrupt);
  raw("INSERT INTO theirs VALUES (1)");
}

TEST_F(JobDbTest, AFileThatIsNoDatabaseIsCorrupt) {
  std::ofstream(path_) << std::string(10'000, 'x');
  EXPECT_EQ(code_of_opening(), Code::kCorrupt);
}

TEST_F(JobDbTest, ADamagedDatabaseIsCorrupt) {
  {
    JobDb db = open();
    ASSERT_TRUE(db.create_job("a", "/jobs/a", {}));
  }
  raw("PRAGMA wal_checkpoint(TRUNCATE)");
  fs::resize_file(path_, fs::file_size(path_) / 2);
  const auto db = JobDb::open(path_, clock_);
  if (db) {
    const auto job = const_cast<JobDb&>(*db).job("a");
    ASSERT_FALSE(job);
    EXPECT_EQ(job.error().code, Code::kCorrupt) << job.error().message;
  } else {
    EXPECT_EQ(db.error().code, Code::kCorrupt) << db.error().message;
  }
}

TEST_F(JobDbTest, AFolderThatIsNotThereIsRefused) {
  const auto db = JobDb::open(root_ / "no" / "yard.db", clock_);
  ASSERT_FALSE(db);
  EXPECT_EQ(db.error().code, Code::kInvalidArgument) << db.error().message;
}

TEST_F(JobDbTest, AFullDiskIsExhaustedAndWhatWasCommittedStays) {
  auto connection = internal::Connection::open(path_);
  ASSERT_TRUE(connection);
  ASSERT_TRUE(
      connection->execute("CREATE TABLE t (x); INSERT INTO t VALUES (1);"
                          "PRAGMA max_page_count = 4"));
  {
    auto transaction = internal::Transaction::begin(*connection);
    ASSERT_TRUE(transaction);
    auto insert = connection->prepare("INSERT INTO t VALUES (?)");
    const Status full = insert->bind(std::string(100'000, 'x')).run();
    ASSERT_FALSE(full);
    EXPECT_EQ(full.error().code, Code::kExhausted) << full.error().message;
  }
  auto count = connection->prepare("SELECT count(*) FROM t");
  ASSERT_TRUE(*count->step());
  EXPECT_EQ(count->integer(), 1);
}

// A job is driven round and round by a child that is shot at an arbitrary moment: what the next
// process finds is a chain without a gap.
TEST_F(JobDbTest, AWriterThatIsKilledLeavesWholeTransactions) {
  {
    JobDb db = open();
    ASSERT_TRUE(db.create_job("a", "/jobs/a", {}));
  }
  for (int round = 0; round < 8; ++round) {
    const pid_t child = ::fork();
    if (child == 0) {
      auto db = JobDb::open(path_, Clock::real());
      while (db) {
        for (const JobEvent event : {JobEvent::kPlaced, JobEvent::kRanksStarted,
                                     JobEvent::kUserFault, JobEvent::kResumeAsked}) {
          [[maybe_unused]] const auto ignored = db->apply({"a", event, 1, "x"});
        }
      }
      ::_exit(1);
    }
    std::this_thread::sleep_for(
        std::chrono::microseconds(1000 + random_below(10'000, 7, 0, static_cast<uint64_t>(round))));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);

    JobDb db = open();
    JobState state = JobState::kQueued;
    const auto rows = db.transitions("a");
    ASSERT_TRUE(rows) << rows.error().message;
    for (const auto& row : *rows) {
      ASSERT_EQ(row.from, state);
      state = row.to;
    }
    EXPECT_EQ(db.job("a")->state, state);
  }
}

TEST_F(JobDbTest, ReadersSeeOnlyWholeTransitionsWhileAWriterWorks) {
  JobDb writer = open();
  ASSERT_TRUE(writer.create_job("a", "/jobs/a", {}));
  std::thread reading([this] {
    auto reader = JobDb::open(path_, Clock::real());
    ASSERT_TRUE(reader) << reader.error().message;
    for (int i = 0; i < 200; ++i) {
      const auto rows = reader->transitions("a");
      ASSERT_TRUE(rows) << rows.error().message;
      JobState state = JobState::kQueued;
      for (const auto& row : *rows) {
        ASSERT_EQ(row.from, state);
        state = row.to;
      }
    }
  });
  for (int i = 0; i < 20; ++i) {
    apply(writer, JobEvent::kPlaced);
    apply(writer, JobEvent::kRanksStarted);
    apply(writer, JobEvent::kUserFault);
    apply(writer, JobEvent::kResumeAsked);
  }
  reading.join();
}

TEST_F(JobDbTest, ManyMayMakeTheDatabaseAtOnce) {
  for (int round = 0; round < 20; ++round) {
    const std::string path = root_ / ("at-once-" + std::to_string(round));
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i)
      threads.emplace_back([&] {
        const auto db = JobDb::open(path, Clock::real());
        EXPECT_TRUE(db) << db.error().message;
      });
    for (auto& thread : threads) thread.join();
  }
}

TEST_F(JobDbTest, TwoWritersTakeTurns) {
  open();
  const auto create_many = [this](const std::string& prefix) {
    auto db = JobDb::open(path_, Clock::real());
    ASSERT_TRUE(db) << db.error().message;
    for (int i = 0; i < 30; ++i) {
      const Status done = db->create_job(prefix + std::to_string(i), "/d", {});
      ASSERT_TRUE(done) << done.error().message;
    }
  };
  std::thread other([&] { create_many("x"); });
  create_many("y");
  other.join();
  EXPECT_EQ(open().jobs()->size(), 60U);
}

}  // namespace
}  // namespace yard::jobdb
