#include "mount/disk_cache.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "storage/testing/s3_faults.h"
#include "telemetry/metric_names.h"

namespace yard::mount {
namespace {

using storage::testing::bytes;
using storage::testing::bytes_text;

constexpr uint64_t kKib = 1 << 10, kMib = 1 << 20;

class DiskCacheTest : public testing::Test {
 protected:
  void SetUp() override {
    folder = std::filesystem::path(testing::TempDir()) /
             ("disk_cache_" + std::to_string(::getpid()) + "_" +
              testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove_all(folder);
    open();
  }
  void TearDown() override {
    cache.reset();
    std::filesystem::remove_all(folder);
  }
  void open(uint64_t size_bytes_max = 64 * kMib) {
    cache.reset();
    auto opened = DiskCache::open({folder, size_bytes_max}, "s3://b", counters);
    ASSERT_TRUE(opened);
    cache = *std::move(opened);
  }
  std::optional<std::string> read(const ObjectVersion& version, uint64_t offset, uint64_t size) {
    std::string out(size, '\0');
    if (!cache->read(version, offset, std::as_writable_bytes(std::span(out)))) return std::nullopt;
    return out;
  }
  std::filesystem::path data_file() const {
    for (const auto& item : std::filesystem::directory_iterator(folder))
      if (item.path().extension() == ".data") return item.path();
    return {};
  }

  std::filesystem::path folder;
  CounterRegistry counters;
  std::unique_ptr<DiskCache> cache;
  const std::string content = bytes_text(kMib + 1000);
  const ObjectVersion version{"a", "e1", kMib + 1000};
};

TEST_F(DiskCacheTest, WholeBlocksThatWereWrittenAreRead) {
  EXPECT_FALSE(read(version, 0, 10));
  cache->write(version, 100, bytes(content.substr(100, 300 * kKib)));
  EXPECT_FALSE(read(version, 100, 10));  // the first block was not whole
  EXPECT_EQ(read(version, 70'000, 100'000), content.substr(70'000, 100'000));
  EXPECT_FALSE(read(version, 300 * kKib, 10));
  cache->write(version, kMib - 64 * kKib, bytes(content.substr(kMib - 64 * kKib)));
  EXPECT_EQ(read(version, kMib + 900, 100), content.substr(kMib + 900));  // the last, short block
}

TEST_F(DiskCacheTest, AnotherVersionOrObjectIsNotThere) {
  cache->write(version, 0, bytes(content));
  EXPECT_TRUE(read(version, 0, 10));
  EXPECT_FALSE(read({"a", "e2", version.size_bytes}, 0, 10));
  EXPECT_FALSE(read({"b", "e1", version.size_bytes}, 0, 10));
  EXPECT_FALSE(read({"a", "e1", version.size_bytes - 1}, 0, 10));
}

TEST_F(DiskCacheTest, AFlippedBitIsFoundAndTheBlockFetchedAgain) {
  cache->write(version, 0, bytes(content));
  {
    const int fd = ::open(data_file().c_str(), O_WRONLY);
    ASSERT_EQ(::pwrite(fd, "!", 1, 200'000), 1);
    ::close(fd);
  }
  EXPECT_FALSE(read(version, 199'000, 10));
  EXPECT_EQ(counters.counter(metric::kMountCacheBadBlocks).value(), 1);
  EXPECT_EQ(read(version, 0, 1000), content.substr(0, 1000));  // the others count still
  cache->write(version, 0, bytes(content));
  EXPECT_EQ(read(version, 199'000, 2000), content.substr(199'000, 2000));
}

TEST_F(DiskCacheTest, WhatIsThereOutlivesTheProcess) {
  cache->write(version, 0, bytes(content));
  open();
  EXPECT_EQ(read(version, 0, content.size()), content);
}

TEST_F(DiskCacheTest, BlocksOfACacheThatWasCutOffAreNotBelieved) {
  cache->write(version, 0, bytes(content));
  const auto path = data_file();
  cache.reset();
  std::filesystem::resize_file(path, 100'000);
  open();
  EXPECT_TRUE(read(version, 0, 1000));
  EXPECT_FALSE(read(version, 500'000, 1000));
  std::filesystem::resize_file(path.parent_path() / (path.stem().string() + ".sums"), 100);
  open();
  EXPECT_FALSE(read(version, 0, 1000));
  cache->write(version, 0, bytes(content));
  EXPECT_EQ(read(version, 0, content.size()), content);
}

TEST_F(DiskCacheTest, AWholeFileIsGivenOnlyWhenEveryBlockIsThereAndRight) {
  cache->write(version, 0, bytes(content.substr(0, kMib)));
  EXPECT_FALSE(cache->whole_file(version));
  cache->write(version, kMib, bytes(content.substr(kMib)));
  const auto file = cache->whole_file(version);
  ASSERT_TRUE(file);
  std::string got(content.size(), '\0');
  EXPECT_EQ(::pread(file->get(), got.data(), got.size(), 0), static_cast<ssize_t>(got.size()));
  EXPECT_TRUE(got == content);
  {
    const int fd = ::open(data_file().c_str(), O_WRONLY);
    ASSERT_EQ(::pwrite(fd, "!", 1, 5), 1);
    ::close(fd);
  }
  EXPECT_FALSE(cache->whole_file(version));
}

TEST_F(DiskCacheTest, TheLeastRecentlyUsedGoesWhenThereIsTooMuch) {
  open(3 * kMib);  // less than four
  const std::string one = bytes_text(kMib);
  const auto named = [](int i) { return ObjectVersion{std::to_string(i), "e", kMib}; };
  for (int i = 0; i < 3; ++i) cache->write(named(i), 0, bytes(one));
  EXPECT_TRUE(read(named(0), 0, 10));
  cache->write(named(3), 0, bytes(one));
  EXPECT_LE(cache->size_bytes(), 3 * kMib);
  EXPECT_TRUE(read(named(0), 0, 10));
  EXPECT_FALSE(read(named(1), 0, 10));
  EXPECT_TRUE(read(named(3), 0, 10));
}

TEST_F(DiskCacheTest, AnObjectLargerThanHalfTheCacheIsNotKept) {
  open(2 * kMib);
  cache->write(version, 0, bytes(content));
  EXPECT_FALSE(read(version, 0, 10));
  EXPECT_EQ(cache->size_bytes(), 0U);
}

TEST_F(DiskCacheTest, AFolderBelongsToOneMount) {
  const auto second = DiskCache::open({folder, kMib}, "s3://b", counters);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Code::kUnavailable);
}

}  // namespace
}  // namespace yard::mount
