#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "base/file.h"
#include "storage/beneath_internal.h"
#include "storage/folder_names_internal.h"

namespace yard::storage {
namespace {

namespace fs = std::filesystem;

TEST(FolderNamesTest, APageGoesOnAtTheFirstNameThatMayHoldALaterKey) {
  const FolderNames names({"b", "a/", "a-", "c/", "a", ""});
  const auto at = [&](std::string_view after) {
    return std::string(names[names.position_behind(after)]);
  };
  EXPECT_EQ(at(""), "a");
  EXPECT_EQ(at("a"), "a-");
  EXPECT_EQ(at("a-"), "a/");
  EXPECT_EQ(at("a/"), "a/");
  EXPECT_EQ(at("a/x"), "a/");
  EXPECT_EQ(at("a0"), "b");
  EXPECT_EQ(at("b"), "c/");
  EXPECT_EQ(at("c/z"), "c/");
  EXPECT_EQ(names.position_behind("d"), names.size());
}

std::shared_ptr<const FolderNames> many(size_t count) {
  std::vector<std::string> names;
  for (size_t i = 0; i < count; ++i) names.push_back(fmt::format("{:05}", i));
  return std::make_shared<FolderNames>(std::move(names));
}

TEST(FolderCacheTest, WhatIsNotUsedForLongestIsDroppedFirst) {
  const auto names = many(2000);
  FolderCache cache(names->memory_bytes() * 2);
  const FolderStamp stamp{1, 2, 3, 4};
  for (const char* folder : {"a/", "b/"}) cache.keep(folder, stamp, names);
  EXPECT_TRUE(cache.find("a/", stamp));
  cache.keep("c/", stamp, names);
  EXPECT_FALSE(cache.find("b/", stamp));
  EXPECT_TRUE(cache.find("a/", stamp));
  EXPECT_LE(cache.memory_bytes(), names->memory_bytes() * 2);
  EXPECT_FALSE(cache.find("a/", {1, 2, 3, 5}));
  cache.drop("a/");
  cache.drop("c/");
  EXPECT_EQ(cache.memory_bytes(), 0u);
}

class PagesTest : public ::testing::Test {
 protected:
  PagesTest() : cache_(size_t{64} << 20, std::chrono::hours(-1)) {
    std::string path = ::testing::TempDir() + "yard-pages-XXXXXX";
    YARD_CHECK(::mkdtemp(path.data()) != nullptr);
    root_ = path;
    root_fd_ = UniqueFd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    for (int i = 0; i < 2500; ++i) make(fmt::format("{:05}", i));
  }
  ~PagesTest() override { fs::remove_all(root_); }

  void make(const std::string& name) { std::ofstream(root_ / name) << "x"; }
  // A time that the folder never had: two changes within one tick of the kernel look alike.
  void stamp_anew() {
    const timespec times[2] = {{++seconds_, 0}, {seconds_, 0}};
    ASSERT_EQ(::utimensat(AT_FDCWD, root_.c_str(), times, 0), 0);
  }
  ListPage page(const std::string& after) {
    return *list_directory({root_fd_.get(), root_.native(), cache_, {}}, {.start_after = after});
  }
  std::shared_ptr<const FolderNames> kept() {
    struct stat info = {};
    EXPECT_EQ(::fstat(root_fd_.get(), &info), 0);
    return cache_.find("", FolderStamp::of(info));
  }

  fs::path root_;
  UniqueFd root_fd_;
  time_t seconds_ = 1'000'000'000;
  FolderCache cache_;  // that takes every folder for settled
};

TEST_F(PagesTest, AFolderIsReadOnceForAllPagesAndForgottenAtItsEnd) {
  const ListPage first = page("");
  const auto names = kept();
  ASSERT_TRUE(names);
  const ListPage second = page(first.next_start_after);
  EXPECT_EQ(kept(), names);
  EXPECT_EQ(second.objects.front().key, "01000");
  const ListPage third = page(second.next_start_after);
  EXPECT_EQ(third.objects.size(), 500u);
  EXPECT_TRUE(third.next_start_after.empty());
  EXPECT_EQ(cache_.memory_bytes(), 0u);
}

TEST_F(PagesTest, WhatHappensBetweenTwoPagesIsSeenOnTheSecond) {
  const ListPage first = page("");
  make("01000-new");
  fs::remove(root_ / "01001");
  fs::resize_file(root_ / "01002", 7);
  stamp_anew();
  const ListPage second = page(first.next_start_after);
  EXPECT_EQ(second.objects[0].key, "01000");
  EXPECT_EQ(second.objects[1].key, "01000-new");
  EXPECT_EQ(second.objects[2].key, "01002");
  EXPECT_EQ(second.objects[2].size_bytes, 7u);
}

TEST_F(PagesTest, AFolderThatHasJustChangedIsReadAgain) {
  FolderCache careful(size_t{64} << 20, std::chrono::hours(1));
  const auto first = list_directory({root_fd_.get(), root_.native(), careful, {}}, {});
  ASSERT_TRUE(first);
  EXPECT_EQ(careful.memory_bytes(), 0u);
}

}  // namespace
}  // namespace yard::storage
