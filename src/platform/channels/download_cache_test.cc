#include "channels/download_cache.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "base/file.h"
#include "base/ids.h"

namespace yard::channels {
namespace {

namespace fs = std::filesystem;

class DownloadCacheTest : public testing::Test {
 protected:
  DownloadCacheTest() { fs::create_directories(root_); }
  ~DownloadCacheTest() override { fs::remove_all(root_); }
  std::string file(const std::string& name, const std::string& text) const {
    std::ofstream(root_ / name) << text;
    return root_ / name;
  }
  const fs::path root_ = fs::temp_directory_path() / ("yard-cache-test-" + random_name(8));
  DownloadCache cache_;
};

TEST_F(DownloadCacheTest, AFileOfTheSameVersionIsTakenOnce) {
  cache_.note("s3://b/a", "v1", file("a", "alpha"));
  ASSERT_TRUE(cache_.move_to(root_ / "kept"));
  EXPECT_FALSE(fs::exists(root_ / "a"));
  EXPECT_FALSE(cache_.take("s3://b/a", "v2", root_ / "wrong"));
  EXPECT_FALSE(cache_.take("s3://b/other", "v1", root_ / "wrong"));
  ASSERT_TRUE(cache_.take("s3://b/a", "v1", root_ / "again"));
  EXPECT_EQ(*read_file(root_ / "again"), "alpha");
  EXPECT_FALSE(cache_.take("s3://b/a", "v1", root_ / "again"));
  // And once more, by the job after the next.
  ASSERT_TRUE(cache_.move_to(root_ / "kept"));
  EXPECT_TRUE(cache_.take("s3://b/a", "v1", root_ / "third"));
}

TEST_F(DownloadCacheTest, AFileThatWasTouchedIsNotOfItsVersionAnyMore) {
  for (const char* name : {"written", "replaced", "moded", "linked", "gone"})
    cache_.note(std::string("s3://b/") + name, "v1", file(name, "alpha"));
  std::ofstream(root_ / "written", std::ios::app) << "x";
  fs::remove(root_ / "replaced");
  file("replaced", "alpha");
  ::chmod((root_ / "moded").c_str(), 0700);
  fs::rename(root_ / "linked", root_ / "elsewhere");
  fs::create_symlink(root_ / "elsewhere", root_ / "linked");
  fs::remove(root_ / "gone");
  ASSERT_TRUE(cache_.move_to(root_ / "kept"));
  EXPECT_EQ(cache_.size(), 0U);
  EXPECT_TRUE(fs::is_empty(root_ / "kept"));
}

TEST_F(DownloadCacheTest, WhatHasNoVersionIsNotKept) {
  cache_.note("s3://b/a", "", file("a", "alpha"));
  EXPECT_EQ(cache_.size(), 0U);
}

TEST_F(DownloadCacheTest, FilesAreFoundWhereTheirFolderWasMovedTo) {
  cache_.note("s3://b/a", "v1", file("a", "alpha"));
  ASSERT_TRUE(cache_.move_to(root_ / "kept"));
  fs::rename(root_ / "kept", root_ / "moved");
  cache_.rebase(root_ / "kept", root_ / "moved");
  EXPECT_TRUE(cache_.take("s3://b/a", "v1", root_ / "a"));
}

}  // namespace
}  // namespace yard::channels
