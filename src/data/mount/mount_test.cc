#include "mount/mount.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <thread>

#include "base/file.h"
#include "mount/mount_point.h"
#include "storage/memory_store.h"
#include "storage/testing/faulty_store.h"
#include "storage/testing/s3_faults.h"
#include "telemetry/metric_names.h"

namespace yard::mount {
namespace {

using storage::testing::bytes_text;

constexpr uint64_t kMib = 1 << 20;
constexpr int kLeftMountsMax = 10;

// So many empty objects "0000000", "0000001", ... that exist in listings only.
class CountingStore final : public storage::ObjectStore {
 public:
  explicit CountingStore(int count) : count_(count) {}
  Result<storage::ListPage> list(const storage::ListRequest& request) override {
    storage::ListPage page;
    int number = request.start_after.empty() ? 0 : std::stoi(request.start_after.substr(0, 7)) + 1;
    if (request.start_after.find('\xF4') != std::string::npos) number = 0;
    for (; number < count_ && page.objects.size() < request.object_count_max; ++number) {
      std::string key = fmt::format("{:07}", number);
      if (key.starts_with(request.prefix))
        page.objects.push_back({.key = std::move(key), .size_bytes = 5, .etag = "e"});
    }
    if (number < count_ && !page.objects.empty()) page.next_start_after = page.objects.back().key;
    return page;
  }
  Status get_range(std::string_view, std::string_view, uint64_t, std::span<std::byte>) override {
    return refusal();
  }
  Result<storage::ObjectInfo> head(std::string_view) override { return refusal(); }
  Result<storage::ObjectInfo> put(std::string_view, std::span<const std::byte>,
                                  const storage::PutOptions&) override {
    return refusal();
  }
  Result<std::unique_ptr<storage::Upload>> upload(std::string_view,
                                                  const storage::PutOptions&) override {
    return refusal();
  }
  Result<storage::ObjectInfo> copy(std::string_view, std::string_view,
                                   const storage::PutOptions&) override {
    return refusal();
  }
  Status remove(std::string_view) override { return refusal(); }
  std::string url() const override { return "counting:"; }

 private:
  static Error refusal() { return {Code::kInvalidArgument, "not in this test"}; }
  const int count_;
};

class MountTest : public testing::Test {
 protected:
  void SetUp() override {
    if (::access("/dev/fuse", R_OK | W_OK) != 0)
      GTEST_SKIP() << "NOT TESTED: /dev/fuse cannot be used here";
    folder = std::filesystem::path(testing::TempDir()) /
             ("mount_" + std::to_string(::getpid()) + "_" +
              testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(folder);
  }
  void TearDown() override {
    mount.reset();
    if (folder.empty()) return;
    // A test that fails may leave several, one over the other.
    for (int i = 0; i < kLeftMountsMax && detach_mount(folder, DetachMode::kLazily); ++i) {
    }
    std::filesystem::remove_all(folder);
  }
  void start(MountOptions options = {}) {
    options.mount_point = folder;
    options.memory_bytes = 64 * kMib;
    auto started = Mount::start(store, std::move(options));
    ASSERT_TRUE(started) << started.error().message;
    mount = *std::move(started);
  }
  std::string path(const std::string& name) const { return folder / name; }

  std::filesystem::path folder;
  std::shared_ptr<storage::MemoryStore> memory = std::make_shared<storage::MemoryStore>();
  std::shared_ptr<storage::ObjectStore> store = memory;
  std::unique_ptr<Mount> mount;
};

TEST_F(MountTest, FilesAreReadByTheProcessThatMountsThem) {
  const std::string content = bytes_text(5 * kMib + 3);
  ASSERT_TRUE(storage::put_text(*memory, "p/a", content));
  ASSERT_TRUE(storage::put_text(*memory, "q", "outside"));
  start({.prefix = "p/"});
  EXPECT_EQ(*read_file(path("a")), content);
  EXPECT_FALSE(std::filesystem::exists(path("q")));
  EXPECT_EQ(mount->counters().snapshot().at(std::string(metric::kMountReadBytes)),
            static_cast<double>(content.size()));
}

TEST_F(MountTest, AStoppedMountLeavesTheDirectoryAsItWasAndCanBeStartedAgain) {
  ASSERT_TRUE(storage::put_text(*memory, "a", "text"));
  for (int i = 0; i < 3; ++i) {
    start();
    EXPECT_EQ(*read_file(path("a")), "text");
    ASSERT_TRUE(mount->stop());
    ASSERT_TRUE(mount->stop());
    EXPECT_FALSE(std::filesystem::exists(path("a")));
    mount.reset();
  }
}

TEST_F(MountTest, AnOpenFileIsWaitedForUntilSomebodyIsInAHurry) {
  ASSERT_TRUE(storage::put_text(*memory, "a", bytes_text(kMib)));
  start();
  const UniqueFd file(::open(path("a").c_str(), O_RDONLY));
  ASSERT_TRUE(file.valid());
  StopSource hurry;
  hurry.request();
  ASSERT_TRUE(mount->stop(hurry.token()));
  char byte = 0;
  EXPECT_EQ(::pread(file.get(), &byte, 1, 0), -1);
}

TEST_F(MountTest, AMountThatIsTakenOffByOthersSaysThatItEnded) {
  ASSERT_TRUE(storage::put_text(*memory, "a", "text"));
  start();
  EXPECT_FALSE(mount->ended().stopped());
  ASSERT_TRUE(detach_mount(folder, DetachMode::kIfIdle));
  EXPECT_TRUE(mount->ended().wait_for(std::chrono::seconds(60)));
  ASSERT_TRUE(mount->stop());
}

TEST_F(MountTest, ASecondMountOnTheSameDirectoryIsRefused) {
  start();
  const auto second = Mount::start(store, {.mount_point = folder});
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Code::kInvalidArgument);
}

// Each lists before it mounts; there they would wait for each other.
TEST_F(MountTest, OfTwoThatStartAtOnceOneIsRefused) {
  std::mutex mutex;
  std::condition_variable changed;
  int listing_count = 0;
  storage::testing::FaultyStore meeting(*memory, [&](const storage::testing::Call& call) -> Status {
    if (call.method != storage::testing::Method::kList) return Ok{};
    std::unique_lock lock(mutex);
    ++listing_count;
    changed.notify_all();
    changed.wait_for(lock, std::chrono::milliseconds(200), [&] { return listing_count >= 4; });
    return Ok{};
  });
  const std::shared_ptr<storage::ObjectStore> together(std::shared_ptr<void>(), &meeting);
  for (int round = 0; round < 3; ++round) {
    listing_count = 0;
    std::vector<std::thread> threads;
    std::array<std::unique_ptr<Mount>, 4> mounts;
    for (auto& each : mounts)
      threads.emplace_back([&] {
        auto started = Mount::start(together, {.mount_point = folder});
        if (started)
          each = *std::move(started);
        else
          EXPECT_TRUE(started.error().code == Code::kInvalidArgument ||
                      started.error().code == Code::kUnavailable)
              << started.error().message;
      });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(std::ranges::count_if(mounts, [](const auto& each) { return each != nullptr; }), 1);
  }
}

TEST_F(MountTest, AnObjectIsNoFolder) {
  ASSERT_TRUE(storage::put_text(*memory, "p/a", "text"));
  const auto started = Mount::start(store, {.prefix = "p/a/", .mount_point = folder});
  ASSERT_FALSE(started);
  EXPECT_EQ(started.error().code, Code::kInvalidArgument);
  EXPECT_NE(started.error().message.find("p/a: is an object"), std::string::npos);
  start({.prefix = "nothing/"});
  EXPECT_TRUE(mount->was_empty());
}

TEST_F(MountTest, WhatCannotBeMountedIsAnErrorAndMountsNothing) {
  EXPECT_EQ(Mount::start(store, {.prefix = "no slash", .mount_point = folder}).error().code,
            Code::kInvalidArgument);
  EXPECT_EQ(Mount::start(store, {.mount_point = path("nothing")}).error().code, Code::kNotFound);
  EXPECT_EQ(Mount::start(store, {.mount_point = folder, .memory_bytes = 1000}).error().code,
            Code::kInvalidArgument);
  EXPECT_FALSE((*mounted_at(std::filesystem::canonical(folder))).has_value());
}

TEST_F(MountTest, OfManyNamesListedAndAskedForFewAreHeldAtATime) {
  constexpr int kCount = 30'000;
  store = std::make_shared<CountingStore>(kCount);
  start({.inode_count_max = 2'000});
  DIR* const directory = ::opendir(folder.c_str());
  ASSERT_NE(directory, nullptr);
  int count = 0;
  while (const dirent* entry = ::readdir(directory)) {
    struct stat info = {};
    if (entry->d_name[0] == '.') continue;
    ASSERT_EQ(::fstatat(::dirfd(directory), entry->d_name, &info, 0), 0) << entry->d_name;
    ASSERT_EQ(info.st_size, 5);
    ++count;
    ASSERT_LE(mount->held_name_count(), 6'000U);
  }
  ::closedir(directory);
  EXPECT_EQ(count, kCount);
}

}  // namespace
}  // namespace yard::mount
