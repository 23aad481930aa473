#include "mount/inodes.h"

#include <gtest/gtest.h>

namespace yard::mount {
namespace {

class InodesTest : public testing::Test {
 protected:
  static Entry file(const std::string& name, const std::string& etag = "1", uint64_t size = 5) {
    return {.name = name, .size_bytes = size, .etag = etag};
  }
  static Entry folder(const std::string& name) { return {.name = name, .is_directory = true}; }

  Inodes inodes{"p/", std::chrono::system_clock::time_point(std::chrono::seconds(7))};
};

TEST_F(InodesTest, ANameKeepsItsNumberWhileItsVersionStands) {
  const auto first = inodes.acquire(kRootInode, file("a"));
  const auto again = inodes.acquire(kRootInode, file("a"));
  EXPECT_EQ(first->inode, again->inode);
  const auto changed = inodes.acquire(kRootInode, file("a", "2"));
  EXPECT_NE(first->inode, changed->inode);
  EXPECT_EQ(first->visible_inode, changed->visible_inode);
  EXPECT_EQ(inodes.file(first->inode)->etag, "1");  // the old one is still the old one
  EXPECT_EQ(inodes.file(changed->inode)->etag, "2");
}

TEST_F(InodesTest, KeysAreMadeOfThePathToTheRoot) {
  const auto a = inodes.acquire(kRootInode, folder("a"));
  const auto b = inodes.acquire(a->inode, folder("b"));
  const auto c = inodes.acquire(b->inode, file("c"));
  EXPECT_EQ(inodes.directory_key(kRootInode), "p/");
  EXPECT_EQ(inodes.directory_key(b->inode), "p/a/b/");
  EXPECT_EQ(inodes.file(c->inode)->key(), "p/a/b/c");
  EXPECT_FALSE(inodes.directory_key(c->inode));
  EXPECT_FALSE(inodes.file(b->inode));
}

TEST_F(InodesTest, ANumberGoesWhenTheKernelLetsGoOfAllItsHolds) {
  const auto a = inodes.acquire(kRootInode, file("a"));
  inodes.acquire(kRootInode, file("a"));
  inodes.release(a->inode, 1);
  EXPECT_TRUE(inodes.attributes(a->inode));
  inodes.release(a->inode, 1);
  EXPECT_FALSE(inodes.attributes(a->inode));
  EXPECT_EQ(inodes.count(), 1U);
  EXPECT_NE(inodes.acquire(kRootInode, file("a"))->inode, a->inode);  // numbers are not used again
}

TEST_F(InodesTest, TheRootStaysAndFilesHaveNoChildren) {
  inodes.release(kRootInode, 100);
  EXPECT_TRUE(inodes.attributes(kRootInode)->is_directory);
  const auto a = inodes.acquire(kRootInode, file("a"));
  EXPECT_FALSE(inodes.acquire(a->inode, file("b")));
  EXPECT_FALSE(inodes.acquire(999, file("b")));
}

TEST_F(InodesTest, WhatAListingShowsAndWhatALookupGivesHaveTheSameNumber) {
  const auto a = inodes.acquire(kRootInode, file("a"));
  EXPECT_EQ(inodes.attributes_of("p/", file("a")).visible_inode, a->visible_inode);
  const auto d = inodes.acquire(kRootInode, folder("d"));
  const auto b = inodes.acquire(d->inode, file("b"));
  EXPECT_EQ(inodes.attributes_of("p/d/", file("b")).visible_inode, b->visible_inode);
}

TEST_F(InodesTest, TheLongestUnaskedAreNamedFirstWhenThereAreTooMany) {
  for (int i = 0; i < 10; ++i) inodes.acquire(kRootInode, file(std::to_string(i)));
  inodes.acquire(kRootInode, file("0"));
  const auto oldest = inodes.oldest(8, 100);  // eleven with the root
  ASSERT_EQ(oldest.size(), 3U);
  EXPECT_EQ(oldest[0].name, "1");
  EXPECT_EQ(oldest[2].name, "3");
  EXPECT_TRUE(inodes.oldest(100, 100).empty());
}

}  // namespace
}  // namespace yard::mount
