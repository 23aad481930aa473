#include "gateway/meta_store.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "gateway/testing/temp_root.h"

namespace yard::gateway {
namespace {

class MetaStoreTest : public testing::TestWithParam<MetaStore::Place> {
 protected:
  MetaStoreTest() : folder_(GetParam()) {}

  UniqueFd open(const std::string& name) {
    return UniqueFd(
        ::open((folder_.path() / "b" / name).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  }
  static FileStamp stamp_of_fd(int fd) {
    struct stat info = {};
    ::fstat(fd, &info);
    return stamp_of(info);
  }

  TempRoot folder_;
};

INSTANTIATE_TEST_SUITE_P(Places, MetaStoreTest,
                         testing::Values(MetaStore::Place::kAttributeOrFile,
                                         MetaStore::Place::kFileOnly));

TEST_P(MetaStoreTest, WhatIsAttachedIsFoundUntilTheContentChanges) {
  MetaStore& meta = folder_.root().meta();
  const UniqueFd file = open("f");
  ASSERT_EQ(::write(file.get(), "12345", 5), 5);
  EXPECT_FALSE(meta.find(file.get(), stamp_of_fd(file.get())));
  const ObjectMeta attached{.etag = "e", .user = {{"k", "v"}}};
  const auto stamp = meta.attach(file.get(), attached);
  ASSERT_TRUE(stamp);
  EXPECT_EQ(*stamp, stamp_of_fd(file.get()));
  EXPECT_EQ(meta.find(file.get(), *stamp), attached);
  // In place and of the same size, as cp over it does.
  ASSERT_EQ(::pwrite(file.get(), "54321", 5, 0), 5);
  EXPECT_FALSE(meta.find(file.get(), stamp_of_fd(file.get())));
}

TEST_P(MetaStoreTest, AnotherFileOfTheNameHasNoneOfIt) {
  MetaStore& meta = folder_.root().meta();
  ASSERT_TRUE(meta.attach(open("f").get(), {.etag = "e"}));
  std::filesystem::remove(folder_.path() / "b" / "f");
  const UniqueFd other = open("f");
  EXPECT_FALSE(meta.find(other.get(), stamp_of_fd(other.get())));
}

TEST_P(MetaStoreTest, NoTwoContentsHaveOneStamp) {
  MetaStore& meta = folder_.root().meta();
  const UniqueFd file = open("f");
  const auto first = meta.attach(file.get(), {.etag = "1"});
  const auto second = meta.attach(file.get(), {.etag = "2"});
  EXPECT_NE(first->mtime_ns, second->mtime_ns);
  EXPECT_EQ(meta.find(file.get(), *second)->etag, "2");
}

TEST_P(MetaStoreTest, MetadataThatNoAttributeHoldsIsKeptAsWell) {
  MetaStore& meta = folder_.root().meta();
  const UniqueFd file = open("f");
  ObjectMeta large{.etag = "e"};
  for (uint64_t i = 0; i < 10'000; ++i) large.part_sizes_bytes.push_back((5 << 20) + i);
  const auto stamp = meta.attach(file.get(), large);
  ASSERT_TRUE(stamp);
  EXPECT_EQ(meta.find(file.get(), *stamp), large);
  meta.forget(*stamp);
  EXPECT_EQ(folder_.count_in("meta"), 0u);
}

TEST_P(MetaStoreTest, MetadataIsFoundAfterARestart) {
  ASSERT_TRUE(folder_.put("f", "x", {.etag = "e", .user = {{"k", "v"}}}));
  folder_.open();
  EXPECT_EQ(folder_.bucket().open("f")->meta.user, (HeaderList{{"k", "v"}}));
}

TEST(SmallMetaFilesTest, GoWithTheirObject) {
  TempRoot folder(MetaStore::Place::kFileOnly);
  ASSERT_TRUE(folder.put("f", "1"));
  ASSERT_TRUE(folder.put("f", "2"));
  EXPECT_EQ(folder.count_in("meta"), 1u);
  ASSERT_TRUE(folder.remove("f"));
  EXPECT_EQ(folder.count_in("meta"), 0u);
}

}  // namespace
}  // namespace yard::gateway
