#include "transfer/partial_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>

namespace yard::transfer {
namespace {

namespace fs = std::filesystem;
using Identity = PartialFile::Identity;

class PartialFileTest : public ::testing::Test {
 protected:
  PartialFileTest() : folder_(::testing::TempDir() + "yard-partial-XXXXXX") {
    YARD_CHECK(::mkdtemp(folder_.data()) != nullptr);
  }
  ~PartialFileTest() override { fs::remove_all(folder_); }

  std::string path() const { return folder_ + "/file"; }
  Result<PartialFile> open(const std::string& source = "s3://b/k etag",
                           const std::string& boot = "b", uint64_t size_bytes = 10,
                           uint64_t part_bytes = 4) {
    return PartialFile::open(path(), {source, size_bytes, part_bytes}, boot);
  }
  static Status write(PartialFile& file, size_t index, const std::string& text) {
    YARD_TRY(file.write(index, 0, std::as_bytes(std::span(text))));
    return file.mark_part(index);
  }
  size_t entry_count() const {
    return size_t(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }

  std::string folder_;
};

TEST_F(PartialFileTest, PartsInAnyOrderBecomeTheFileAtOnce) {
  {
    auto file = open();
    ASSERT_TRUE(file);
    ASSERT_TRUE(write(*file, 2, "89"));
    ASSERT_TRUE(write(*file, 0, "0123"));
    EXPECT_FALSE(fs::exists(path()));
    ASSERT_TRUE(write(*file, 1, "4567"));
    const auto time =
        std::chrono::system_clock::time_point(std::chrono::milliseconds(1'234'567'890));
    ASSERT_TRUE(file->finish({.modified = time, .sync = true}));
    struct stat info = {};
    ASSERT_EQ(::stat(path().c_str(), &info), 0);
    EXPECT_EQ(info.st_mtim.tv_sec, 1'234'567);
    EXPECT_EQ(info.st_mtim.tv_nsec, 890'000'000);
  }
  EXPECT_EQ(*read_file(path()), "0123456789");
  EXPECT_EQ(entry_count(), 1U);
}

TEST_F(PartialFileTest, ASizeThatNoFileCanHaveIsRefusedAndLeavesNothing) {
  const auto file = open("s", "b", uint64_t{INT64_MAX}, 32 << 20);
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().code, Code::kExhausted);
  EXPECT_EQ(entry_count(), 0U);
}

TEST_F(PartialFileTest, WithIfAbsentANameThatWasTakenMeanwhileIsKept) {
  {
    auto file = open("s", "b", 3, 4);
    ASSERT_TRUE(file);
    ASSERT_TRUE(write(*file, 0, "new"));
    ASSERT_TRUE(write_file_atomic(path(), "old"));
    const Status finished = file->finish({.if_absent = true});
    ASSERT_FALSE(finished);
    EXPECT_EQ(finished.error().code, Code::kInvalidArgument);
    file->discard();
  }
  EXPECT_EQ(*read_file(path()), "old");
  EXPECT_EQ(entry_count(), 1U);
}

TEST_F(PartialFileTest, ABrokenOffFileGoesOnWithThePartsItHas) {
  {
    auto file = open();
    ASSERT_TRUE(write(*file, 1, "4567"));
  }
  EXPECT_FALSE(fs::exists(path()));
  {
    // Another size of parts is asked for this time; that of the record holds.
    auto file = open("s3://b/k etag", "b", 10, 8);
    ASSERT_TRUE(file);
    EXPECT_EQ(file->part_bytes(), 4U);
    EXPECT_FALSE(file->has_part(0));
    EXPECT_TRUE(file->has_part(1));
    std::string part(4, '?');
    ASSERT_TRUE(file->read(1, 0, std::as_writable_bytes(std::span(part))));
    EXPECT_EQ(part, "4567");
    ASSERT_TRUE(write(*file, 0, "0123"));
    ASSERT_TRUE(write(*file, 2, "89"));
    ASSERT_TRUE(file->finish({}));
  }
  EXPECT_EQ(*read_file(path()), "0123456789");
}

TEST_F(PartialFileTest, ARecordOfSomethingElseIsDropped) {
  for (const auto& [source, boot, size] :
       std::vector<std::tuple<std::string, std::string, uint64_t>>{
           {"s3://b/k other", "b", 10},
           {"s3://b/k etag", "rebooted", 10},
           {"s3://b/k etag", "b", 11},
           {"s3://b/k etag", "b", 9},
           {"s3://b/k etag", "", 10}}) {
    {
      auto file = open();
      ASSERT_TRUE(write(*file, 1, "4567"));
    }
    auto file = open(source, boot, size);
    ASSERT_TRUE(file);
    EXPECT_FALSE(file->has_part(1)) << source << boot << size;
    file->discard();
  }
}

TEST_F(PartialFileTest, ADamagedRecordIsDropped) {
  std::string whole;
  {
    auto file = open();
    ASSERT_TRUE(write(*file, 1, "4567"));
  }
  const std::string hidden = partial_path(path());
  whole = *read_file(hidden);
  for (size_t size = 0; size < whole.size(); ++size) {
    ASSERT_TRUE(write_file_atomic(hidden, whole.substr(0, size)));
    auto file = open();
    ASSERT_TRUE(file);
    EXPECT_FALSE(file->has_part(1)) << size;
    file->discard();
  }
  for (size_t at = 10; at + 3 < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] ^= 1;
    ASSERT_TRUE(write_file_atomic(hidden, damaged));
    auto file = open();
    ASSERT_TRUE(file);
    EXPECT_FALSE(file->has_part(1)) << at;
    file->discard();
  }
}

TEST_F(PartialFileTest, TwoProcessesCannotWriteOneFile) {
  auto first = open();
  ASSERT_TRUE(first);
  const auto second = open();
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Code::kUnavailable);
}

TEST_F(PartialFileTest, NothingStaysOfAFileWithoutParts) {
  { auto file = open(); }
  {
    auto file = open();
    ASSERT_TRUE(write(*file, 0, "0123"));
    file->discard();
  }
  EXPECT_EQ(entry_count(), 0U);
}

TEST_F(PartialFileTest, EmptyAndOnePartFilesNeedNoRecord) {
  {
    auto file = open("s", "b", 0, 4);
    ASSERT_TRUE(file);
    EXPECT_EQ(file->part_count(), 0U);
    ASSERT_TRUE(file->finish({}));
  }
  EXPECT_EQ(*read_file(path()), "");
  {
    auto file = open("s", "b", 4, 4);
    ASSERT_TRUE(write(*file, 0, "abcd"));
    ASSERT_TRUE(file->finish({}));
  }
  EXPECT_EQ(*read_file(path()), "abcd");
}

TEST_F(PartialFileTest, AFolderInTheWayIsRefused) {
  fs::create_directory(path());
  auto file = open("s", "b", 4, 4);
  ASSERT_TRUE(write(*file, 0, "abcd"));
  EXPECT_EQ(file->finish({}).error().code, Code::kInvalidArgument);
}

TEST(PartialPathTest, IsHiddenBesideAndFitsIntoAName) {
  EXPECT_EQ(partial_path("/d/name"), "/d/.name.yard-part");
  EXPECT_EQ(partial_path("name"), ".name.yard-part");
  const std::string long_a = std::string(254, 'n') + "a", long_b = std::string(254, 'n') + "b";
  EXPECT_EQ(fs::path(partial_path("/d/" + long_a)).filename().string().size(), 255U);
  EXPECT_NE(partial_path(long_a), partial_path(long_b));
}

}  // namespace
}  // namespace yard::transfer
