// Saves that are killed, and disks that are full: the last whole checkpoint is always there.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <functional>
#include <random>

#include "checkpoint/load.h"
#include "checkpoint/saver.h"
#include "checkpoint/testing/sharded_state.h"
#include "storage/directory_store.h"
#include "storage/testing/faulty_store.h"

namespace yard::checkpoint {
namespace {

#if defined(__SANITIZE_THREAD__)
constexpr bool kIsSlow = true;
#else
constexpr bool kIsSlow = false;
#endif

using storage::DirectoryStore;
using storage::testing::Call;
using storage::testing::FaultyStore;
using testing::make_state;
using testing::on_exchanges;
using testing::State;

class Folder {
 public:
  Folder() {
    // In memory where there is such a file system: what a killed process wrote is there, too.
    const bool has_memory = ::access("/dev/shm", W_OK) == 0;
    const std::filesystem::path parent =
        has_memory ? "/dev/shm" : std::filesystem::temp_directory_path();
    std::string name = (parent / "checkpoint-XXXXXX").string();
    YARD_CHECK(::mkdtemp(name.data()) != nullptr);
    path = name;
  }
  ~Folder() { std::filesystem::remove_all(path); }

  std::string path;
};

SaverOptions saver_options() {
  return {.retention = {.keep_last = 2}, .files = {.file_count_max = 2, .file_bytes_min = 1000}};
}

// Saves step after step on two ranks; after `step_count` of them it ends. `on_saved` hears of each.
Status save_from(storage::ObjectStore& store, int64_t first_step, int64_t step_count,
                 const std::function<void()>& on_saved = nullptr, uint64_t scale = 1) {
  Status first_rank = Ok{};
  on_exchanges(2, [&](Exchange& exchange) {
    Saver saver(CheckpointStore(store, "run"), exchange, saver_options());
    State state = make_state(exchange.rank(), 2, scale);
    Status saved = Ok{};
    for (int64_t step = first_step; saved && step < first_step + step_count; ++step) {
      testing::fill(state, step);
      saved = saver.save(step, testing::views_of(state));
      if (saved) saved = saver.wait();
      if (saved && exchange.rank() == 0 && on_saved) on_saved();
    }
    if (exchange.rank() == 0) first_rank = saved;
  });
  return first_rank;
}

// A process of its own that calls `body`; it has no threads before.
pid_t start(const std::function<void()>& body) {
  const pid_t child = ::fork();
  YARD_CHECK(child >= 0);
  if (child > 0) return child;
  body();
  ::_exit(0);
}

int status_of(pid_t child) {
  int status = 0;
  YARD_CHECK(::waitpid(child, &status, 0) == child);
  return status;
}

// The newest checkpoint's step; every byte of it is checked, by other ranks than saved it.
int64_t check_latest(const std::string& path) {
  const auto store = DirectoryStore::open(path);
  const CheckpointStore checkpoints(**store, "run");
  const auto manifest = checkpoints.latest();
  EXPECT_TRUE(manifest);
  if (!manifest || !*manifest) return -1;
  for (int rank = 0; rank < 3; ++rank) {
    State state = make_state(rank, 3);
    const Status loaded = load(checkpoints, **manifest, testing::targets_of(state));
    EXPECT_TRUE(loaded) << loaded.error().message;
    EXPECT_EQ(testing::wrong_count(state, (*manifest)->step), 0U);
  }
  return (*manifest)->step;
}

// Nothing but what the manifests name.
void expect_no_left_overs(const std::string& path) {
  const auto store = DirectoryStore::open(path);
  const CheckpointStore checkpoints(**store, "run");
  size_t named = 0;
  const auto steps = checkpoints.steps();
  ASSERT_TRUE(steps);
  for (const int64_t step : *steps) named += 1 + checkpoints.read(step)->files.size();
  EXPECT_EQ(storage::list_all(**store, "")->size(), named);
  EXPECT_EQ(steps->size(), 2U);
}

TEST(KilledSave, AtEveryCallOfTheStoreTheLastWholeCheckpointLoads) {
  const Folder folder;
  {
    const auto store = DirectoryStore::open(folder.path);
    ASSERT_TRUE(save_from(**store, 1, 2));
  }
  int64_t last = check_latest(folder.path);
  bool was_killed = true;
  uint64_t number = 0;
  // Under the thread sanitizer, which sees nothing of a process that is killed, every fourth.
  for (; was_killed && number < 300; number += kIsSlow ? 4 : 1) {
    const pid_t child = start([&] {
      auto store = DirectoryStore::open(folder.path);
      std::atomic<uint64_t> calls = 0;
      FaultyStore dying(**store, [&](const Call&) -> Status {
        if (calls++ == number) ::kill(::getpid(), SIGKILL);
        return Ok{};
      });
      static_cast<void>(save_from(dying, last + 1, 1));
    });
    const int status = status_of(child);
    was_killed = WIFSIGNALED(status);
    if (was_killed) {
      ASSERT_EQ(WTERMSIG(status), SIGKILL) << "at call " << number;
    }
    const int64_t found = check_latest(folder.path);
    ASSERT_GE(found, last) << "killed at call " << number;
    last = found;
    // Else each save would have more to remove than the one before, and so more calls.
    const auto store = DirectoryStore::open(folder.path);
    const CheckpointStore checkpoints(**store, "run");
    ASSERT_TRUE(checkpoints.retain({.keep_last = 2}));
    ASSERT_TRUE(checkpoints.sweep(std::chrono::seconds(0)));
    EXPECT_EQ(check_latest(folder.path), last);
  }
  EXPECT_FALSE(was_killed);
  EXPECT_GT(number, 20U);  // it was killed at as many calls
  const auto store = DirectoryStore::open(folder.path);
  ASSERT_TRUE(save_from(**store, last + 1, 2));
  expect_no_left_overs(folder.path);
}

TEST(KilledSave, AtFiftyRandomInstantsTheLastWholeCheckpointLoads) {
  const Folder folder;
  std::mt19937 dice(7);
  int64_t last = 0;
  for (int round = 0; round < (kIsSlow ? 10 : 50); ++round) {
    int pipe_fds[2];
    ASSERT_EQ(::pipe(pipe_fds), 0);
    const pid_t child = start([&] {
      auto store = DirectoryStore::open(folder.path);
      const auto tell = [&] { static_cast<void>(!::write(pipe_fds[1], "s", 1)); };
      static_cast<void>(save_from(**store, last + 1, 1000, tell));
    });
    // The first one is waited for, so that every round makes progress; then at any time.
    char saved = 0;
    ASSERT_EQ(::read(pipe_fds[0], &saved, 1), 1);
    ::usleep(dice() % 40'000);
    ::kill(child, SIGKILL);
    status_of(child);
    ::close(pipe_fds[0]);
    ::close(pipe_fds[1]);
    const int64_t found = check_latest(folder.path);
    ASSERT_GT(found, last);
    last = found;
  }
  const auto store = DirectoryStore::open(folder.path);
  ASSERT_TRUE(save_from(**store, last + 1, 2));
  expect_no_left_overs(folder.path);
}

TEST(FullDisk, IsAnErrorAndTheOlderCheckpointStaysWhole) {
  const Folder folder;
  if (::mount("none", folder.path.c_str(), "tmpfs", 0, "size=1m") != 0)
    GTEST_SKIP() << "NOT TESTED: no tmpfs may be mounted here: " << std::strerror(errno);
  {
    const auto store = DirectoryStore::open(folder.path);
    EXPECT_TRUE(save_from(**store, 1, 1));
    const Status saved = save_from(**store, 2, 1, nullptr, 100);  // 2 MB
    EXPECT_FALSE(saved);
    if (!saved) {
      EXPECT_EQ(saved.error().code, Code::kExhausted) << saved.error().message;
    }
    EXPECT_EQ(check_latest(folder.path), 1);
    EXPECT_TRUE(save_from(**store, 3, 1));  // there is room again
    EXPECT_EQ(check_latest(folder.path), 3);
    expect_no_left_overs(folder.path);
  }
  EXPECT_EQ(::umount(folder.path.c_str()), 0);
}

}  // namespace
}  // namespace yard::checkpoint
