#include "jobdb/platform_db.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "base/ids.h"
#include "base/random.h"
#include "base/testing/fake_clock.h"
#include "jobdb/job_db.h"
#include "jobdb/migrations_internal.h"

namespace yard::jobdb {
namespace {

namespace fs = std::filesystem;
using jobs::HostLife;
using jobs::JobKind;
using jobs::JobStage;
using jobs::WarmState;
using E = jobs::PlatformEvent;

jobs::JobRequest request(const std::string& name) {
  return {.kind = JobKind::kTraining,
          .name = name,
          .arn = "arn:" + name,
          .request = {{"TrainingJobName", name}, {"text", "\u00fc \"quoted\""}},
          .tags = {{"team", "x"}},
          .user = "ann"};
}

PlatformHostRow host(const std::string& name, HostLife life = HostLife::kWanted, int slice = 0) {
  PlatformHostRow row{.name = name, .life = life, .group = "g"};
  row.slice = {.number = slice,
               .instance_type = "t",
               .cores = {0, 2},
               .gpus = {1},
               .memory_bytes = uint64_t{1} << 40,
               .price_per_hour = 1.5,
               .is_shared = false};
  return row;
}

class PlatformDbTest : public testing::Test {
 protected:
  PlatformDbTest() { fs::create_directories(root_); }
  ~PlatformDbTest() override { fs::remove_all(root_); }

  PlatformDb open() {
    auto db = PlatformDb::open(path_);
    EXPECT_TRUE(db) << db.error().message;
    return *std::move(db);
  }
  static int64_t create(PlatformDb& db, const std::string& name, double t = 10) {
    const auto id =
        db.create(request(name), "/jobs/" + name, {host("algo-1"), host("algo-2")}, 0, t);
    EXPECT_TRUE(id) << id.error().message;
    return id ? *id : 0;
  }
  static void apply(PlatformDb& db, PlatformStep step) {
    const auto done = db.apply(step);
    ASSERT_TRUE(done) << done.error().message;
  }

  const fs::path root_ = fs::temp_directory_path() / ("yard-platformdb-test-" + random_name(8));
  const std::string path_ = root_ / "yard.db";
};

TEST_F(PlatformDbTest, ARequestComesBackVerbatim) {
  PlatformDb db = open();
  const int64_t id = create(db, "a");
  const auto row = db.find(JobKind::kTraining, "a");
  ASSERT_TRUE(row) << row.error().message;
  EXPECT_EQ(row->id, id);
  EXPECT_EQ(row->job.request, request("a").request);
  EXPECT_EQ(row->job.tags, request("a").tags);
  EXPECT_EQ(row->job.user, "ann");
  EXPECT_EQ(row->state.stage, JobStage::kQueued);
  EXPECT_FALSE(row->exit_code);
  EXPECT_FALSE(row->training_start_t);
  const auto changes = db.changes(id);
  ASSERT_EQ(changes->size(), 1U);
  EXPECT_EQ((*changes)[0].status, "Starting");
  const auto hosts = db.hosts(id);
  ASSERT_EQ(hosts->size(), 2U);
  EXPECT_EQ((*hosts)[1], host("algo-2"));
  EXPECT_EQ(db.find(JobKind::kProcessing, "a").error().code, Code::kNotFound);
  EXPECT_EQ(db.pending_work()->size(), 1U) << "it is to be placed";
}

TEST_F(PlatformDbTest, ANameIsTakenOnceInItsKindAndAgainstYardRun) {
  PlatformDb db = open();
  create(db, "a");
  EXPECT_EQ(db.create(request("a"), "/jobs/a", {}, 0, 1).error().code, Code::kExhausted);
  FakeClock clock;
  auto other = JobDb::open(path_, clock);
  ASSERT_TRUE(other);
  EXPECT_FALSE(other->create_job("a", "/jobs/a", {.pid = 1, .start_ticks = 1}));
  ASSERT_TRUE(other->create_job("b", "/jobs/b", {.pid = 1, .start_ticks = 1}));
  EXPECT_EQ(db.create(request("b"), "/jobs/b", {}, 0, 1).error().code, Code::kExhausted);
  EXPECT_EQ(db.active_ids()->size(), 1U);
}

TEST_F(PlatformDbTest, AStepWritesEverythingOrNothing) {
  PlatformDb db = open();
  const int64_t id = create(db, "a");
  apply(db, {.job_id = id,
             .event = E::kPlaced,
             .t = 12,
             .hosts = {host("algo-1", HostLife::kHeld, 1), host("algo-2", HostLife::kHeld, 2)}});
  EXPECT_EQ((*db.hosts(id))[1].slice.number, 2);
  // A pool that is not Available cannot be taken over: nothing of the step may stay.
  const int64_t other = create(db, "b");
  const auto refused = db.apply({.job_id = other,
                                 .event = E::kPlaced,
                                 .t = 13,
                                 .hosts = {host("algo-1", HostLife::kHeld, 1)},
                                 .warm_from = id});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kInvalidArgument);
  EXPECT_EQ(db.job(other)->state.stage, JobStage::kQueued);
  EXPECT_EQ((*db.hosts(other))[0].life, HostLife::kWanted);
  EXPECT_EQ(db.changes(other)->size(), 1U);
  EXPECT_TRUE(db.attempts(other)->empty());
  EXPECT_EQ(db.transitions(other)->size(), 1U);
}

TEST_F(PlatformDbTest, AnEventThatIsRefusedChangesNothing) {
  PlatformDb db = open();
  const int64_t id = create(db, "a");
  EXPECT_EQ(db.apply({.job_id = id, .event = E::kUploaded, .t = 11}).error().code,
            Code::kInvalidArgument);
  EXPECT_EQ(db.apply({.job_id = 99, .event = E::kPlaced, .t = 11}).error().code, Code::kNotFound);
  EXPECT_EQ(db.transitions(id)->size(), 1U);
}

TEST_F(PlatformDbTest, ARelaunchEndsTheAttemptAndCountsItsCause) {
  PlatformDb db = open();
  const int64_t id = create(db, "a");
  apply(db, {.job_id = id, .event = E::kPlaced, .t = 11});
  apply(db, {.job_id = id, .event = E::kTrainingBegan, .t = 12});
  apply(db, {.job_id = id,
             .event = E::kRelaunch,
             .t = 20,
             .detail = "gone",
             .cause = jobs::FaultCause::kHostFault,
             .avoid = {2}});
  apply(db, {.job_id = id, .event = E::kHostsCleared, .t = 21});
  apply(db, {.job_id = id, .event = E::kPlaced, .t = 22});
  const auto row = db.job(id);
  EXPECT_EQ(row->attempt, 1);
  EXPECT_EQ(row->used.of(jobs::FaultCause::kHostFault), 1);
  EXPECT_EQ(row->avoided_slices, (std::vector{2}));
  EXPECT_EQ(row->training_start_t, 12);
  EXPECT_EQ(row->failure_reason, "") << "it has not failed";
  const auto attempts = db.attempts(id);
  ASSERT_EQ(attempts->size(), 2U);
  EXPECT_EQ((*attempts)[0].ended_t, 20);
  EXPECT_EQ((*attempts)[0].cause, "host_fault");
  EXPECT_EQ((*attempts)[1].ended_t, 0);
}

TEST_F(PlatformDbTest, ChangesFollowEachOtherWhateverTheClockSays) {
  PlatformDb db = open();
  const int64_t id = create(db, "a", 100);
  apply(db, {.job_id = id, .event = E::kPlaced, .t = 50});
  apply(db, {.job_id = id, .event = E::kTrainingBegan, .t = 70});
  apply(db, {.job_id = id, .event = E::kScriptsDone, .t = 120});
  const auto changes = db.changes(id);
  ASSERT_EQ(changes->size(), 4U);
  for (size_t i = 1; i < changes->size(); ++i) {
    EXPECT_GE((*changes)[i].start_t, (*changes)[i - 1].start_t);
    EXPECT_EQ((*changes)[i - 1].end_t, (*changes)[i].start_t);
  }
}

TEST_F(PlatformDbTest, AWarmPoolChangesHandsInOneStep) {
  PlatformDb db = open();
  const int64_t first = create(db, "first");
  apply(db, {.job_id = first, .event = E::kPlaced, .t = 11});
  apply(db, {.job_id = first, .event = E::kTrainingBegan, .t = 12});
  apply(db, {.job_id = first, .event = E::kScriptsDone, .t = 13});
  apply(db, {.job_id = first, .event = E::kUploaded, .t = 14, .keep_hosts_until_t = 74});
  EXPECT_EQ(db.job(first)->warm.state, WarmState::kAvailable);
  EXPECT_EQ(db.active_ids()->size(), 1U) << "it has hosts";
  const int64_t second = create(db, "second");
  apply(db, {.job_id = second, .event = E::kPlaced, .t = 20, .warm_from = first});
  const auto pool = db.job(first)->warm;
  EXPECT_EQ(pool.state, WarmState::kReused);
  EXPECT_EQ(pool.reused_by, "second");
  EXPECT_EQ(pool.since_t, 14);
  EXPECT_EQ(pool.until_t, 20);
  EXPECT_EQ((*db.hosts(first))[0].life, HostLife::kFree);
  EXPECT_EQ(db.job(second)->warm.state, WarmState::kInUse);
  EXPECT_EQ(db.end_warm_pool(first, 30).error().code, Code::kInvalidArgument);
}

TEST_F(PlatformDbTest, ListsFilterSortAndPage) {
  PlatformDb db = open();
  for (int i = 0; i < 7; ++i) create(db, "job-" + std::to_string(i), 10 + i / 2);
  PlatformQuery query{.limit = 3};
  std::vector<std::string> names;
  do {
    const auto page = db.list(query);
    ASSERT_TRUE(page) << page.error().message;
    for (const auto& row : page->jobs) names.push_back(row.job.name);
    query.page_token = page->next_token;
  } while (!query.page_token.empty());
  EXPECT_EQ(names, (std::vector<std::string>{"job-6", "job-5", "job-4", "job-3", "job-2", "job-1",
                                             "job-0"}));
  EXPECT_EQ(db.list({.name_contains = "OB-3"})->jobs.size(), 1U);
  EXPECT_EQ(db.list({.name_contains = "%"})->jobs.size(), 0U);
  EXPECT_EQ(db.list({.status = "InProgress"})->jobs.size(), 7U);
  EXPECT_EQ(db.list({.created_after_t = 10, .created_before_t = 12})->jobs.size(), 2U);
  EXPECT_EQ(db.list({.sort = PlatformQuery::Sort::kName, .ascending = true})->jobs[0].job.name,
            "job-0");
  for (const char* token : {"x", "[1]", "[[1],2]", "[null,2]", "{}", "[1,\"a\"]", "[true,1]"})
    EXPECT_EQ(db.list({.page_token = token}).error().code, Code::kInvalidArgument) << token;
  EXPECT_FALSE(db.list({.limit = 0}));
  EXPECT_FALSE(db.list({.limit = 1001}));
}

TEST_F(PlatformDbTest, RemovingAJobTakesAllItsRowsAlong) {
  PlatformDb db = open();
  const int64_t id = create(db, "a");
  ASSERT_TRUE(db.remove(id));
  EXPECT_EQ(db.tags("arn:a").error().code, Code::kNotFound);
  EXPECT_TRUE(db.hosts(id)->empty());
  EXPECT_TRUE(db.pending_work()->empty());
  EXPECT_NE(create(db, "a"), id) << "numbers are not used again";
}

TEST_F(PlatformDbTest, ADatabaseOfTheFirstSchemaIsBroughtUpToDate) {
  {
    // The tables of the platform taken away again: what version 1 had.
    PlatformDb db = open();
    auto connection = internal::Connection::open(path_);
    ASSERT_TRUE(connection);
    for (const char* table : {"platform_tags", "platform_hosts", "platform_transitions",
                              "platform_attempts", "platform_status_changes", "platform_jobs"})
      ASSERT_TRUE(connection->execute(("DROP TABLE " + std::string(table)).c_str()));
    ASSERT_TRUE(connection->execute(
        "INSERT INTO jobs (name, dir, state, owner_pid, owner_start_ticks, created_t, updated_t) "
        "VALUES ('old', '/jobs/old', 'failed', 1, 1, 1, 1); PRAGMA user_version = 1"));
  }
  PlatformDb db = open();
  EXPECT_GT(create(db, "a"), 0);
  FakeClock clock;
  EXPECT_EQ(JobDb::open(path_, clock)->job("old")->state, jobs::JobState::kFailed);
}

TEST_F(PlatformDbTest, AWordThatWeNeverWroteIsCorrupt) {
  PlatformDb db = open();
  const int64_t id = create(db, "a");
  auto connection = internal::Connection::open(path_);
  ASSERT_TRUE(connection->execute("UPDATE platform_jobs SET avoided_slices = '[\"x\"]'"));
  EXPECT_EQ(db.job(id).error().code, Code::kCorrupt);
  ASSERT_TRUE(connection->execute("UPDATE platform_jobs SET avoided_slices = '[', stage = 'odd'"));
  EXPECT_EQ(db.job(id).error().code, Code::kCorrupt);
}

// Whatever was committed is there, and nothing else: a child that is killed while it moves jobs on.
TEST_F(PlatformDbTest, AKillBetweenTwoInstructionsLeavesWholeSteps) {
  { open(); }
  for (uint64_t round = 0; round < 10; ++round) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      auto db = PlatformDb::open(path_);
      for (int i = 0;; ++i) {
        const std::string name = "r" + std::to_string(round) + "-" + std::to_string(i);
        const auto id =
            db->create(request(name), "/jobs/" + name, {host("algo-1"), host("algo-2")}, 0, 10);
        for (const E event : {E::kPlaced, E::kDownloadBegan, E::kTrainingBegan, E::kScriptsDone})
          (void)db->apply(
              {.job_id = *id,
               .event = event,
               .t = 11,
               .hosts = {host("algo-1", HostLife::kHeld, 1), host("algo-2", HostLife::kHeld, 2)}});
      }
    }
    ::usleep(static_cast<useconds_t>(5'000 + random_below(40'000, 7, 0, round)));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    PlatformDb db = open();
    const auto ids = db.active_ids();
    for (const int64_t id : *ids) {
      const auto row = db.job(id);
      ASSERT_TRUE(row) << row.error().message;
      const auto transitions = db.transitions(id);
      EXPECT_EQ(transitions->back().to, row->state.stage);
      const bool is_placed = row->state.stage != JobStage::kQueued;
      const auto hosts = db.hosts(id);
      for (const auto& each : *hosts) EXPECT_EQ(each.slice.number > 0, is_placed);
      EXPECT_EQ(db.attempts(id)->size(), is_placed ? 1U : 0U);
      EXPECT_EQ(db.changes(id)->size(), transitions->size());
    }
  }
}

}  // namespace
}  // namespace yard::jobdb
