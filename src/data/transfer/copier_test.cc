#include "transfer/copier.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>

#include "storage/directory_store.h"
#include "storage/memory_store.h"
#include "storage/testing/faulty_store.h"

namespace yard::transfer {
namespace {

namespace fs = std::filesystem;
using storage::MemoryStore;
using storage::put_text;
using storage::testing::Call;
using storage::testing::FaultyStore;
using storage::testing::Method;

constexpr uint64_t kMiB = 1 << 20;

std::string text_of(size_t size_bytes) {
  std::string text(size_bytes, '\0');
  for (size_t i = 0; i < size_bytes; ++i) text[i] = static_cast<char>((i * 2654435761U) >> 13);
  return text;
}

class CopierTest : public ::testing::Test {
 protected:
  CopierTest() : folder_(::testing::TempDir() + "yard-copier-XXXXXX") {
    YARD_CHECK(::mkdtemp(folder_.data()) != nullptr);
  }
  ~CopierTest() override { fs::remove_all(folder_); }

  // What a copier over these makes of it; the outcome of each copy is counted.
  Status copy(std::vector<Copy> copies, CopierOptions options = {}) {
    good_count_ = bad_count_ = 0;
    Copier copier(
        options, [&](const Copy&, const Status& status) { ++(status ? good_count_ : bad_count_); });
    for (Copy& each : copies) copier.add(std::move(each));
    return copier.finish();
  }
  Copy into_file(std::shared_ptr<storage::ObjectStore> source, const std::string& key,
                 const std::string& name) {
    auto info = *source->head(key);
    return {.source = std::move(source), .info = info, .target_path = folder_ + "/" + name};
  }
  size_t file_count() const {
    size_t count = 0;
    for (const auto& entry : fs::recursive_directory_iterator(folder_))
      count += entry.is_regular_file() ? 1 : 0;
    return count;
  }

  std::string folder_;
  std::shared_ptr<MemoryStore> store_ = std::make_shared<MemoryStore>();
  const std::string large_ = text_of(11 * kMiB + 7);  // parts of 1 MiB
  int good_count_ = 0;
  int bad_count_ = 0;
};

TEST_F(CopierTest, ObjectsOfAllSizesBecomeFilesWithTheirTimes) {
  std::vector<Copy> copies;
  std::map<std::string, std::string> wanted = {
      {"empty", ""}, {"small", "abc"}, {"a/b/deep", text_of(100'000)}, {"large", large_}};
  for (const auto& [key, content] : wanted) {
    ASSERT_TRUE(put_text(*store_, key, content));
    copies.push_back(into_file(store_, key, "out/" + key));
  }
  ASSERT_TRUE(copy(copies));
  EXPECT_EQ(good_count_, 4);
  for (const auto& [key, content] : wanted)
    EXPECT_EQ(*read_file(folder_ + "/out/" + key), content) << key;
  EXPECT_EQ(file_count(), 4U);
  struct stat info = {};
  ASSERT_EQ(::stat((folder_ + "/out/large").c_str(), &info), 0);
  EXPECT_EQ(info.st_mtim.tv_sec,
            std::chrono::system_clock::to_time_t(store_->head("large")->modified));
}

TEST_F(CopierTest, WithIfAbsentAFileThatIsThereStays) {
  for (const std::string& content : {std::string("new"), large_}) {
    ASSERT_TRUE(put_text(*store_, "k", content));
    ASSERT_TRUE(write_file_atomic(folder_ + "/taken", "old"));
    const Status copied = copy({into_file(store_, "k", "taken")}, {.if_absent = true});
    ASSERT_FALSE(copied);
    EXPECT_EQ(copied.error().code, Code::kInvalidArgument);
    EXPECT_EQ(*read_file(folder_ + "/taken"), "old");
    EXPECT_EQ(file_count(), 1U);
  }
}

TEST_F(CopierTest, APipeOrDeviceIsNotReplacedByAFile) {
  const std::string pipe = folder_ + "/pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  fs::create_symlink(pipe, folder_ + "/link");
  ASSERT_TRUE(put_text(*store_, "small", "abc"));
  ASSERT_TRUE(put_text(*store_, "large", large_));
  EXPECT_FALSE(copy({into_file(store_, "small", "pipe"), into_file(store_, "large", "pipe"),
                     into_file(store_, "small", "link")}));
  EXPECT_EQ(bad_count_, 3);
  EXPECT_TRUE(fs::is_fifo(pipe));
  EXPECT_TRUE(fs::is_symlink(folder_ + "/link"));
  EXPECT_EQ(file_count(), 0U);
}

TEST_F(CopierTest, FilesAndObjectsBecomeObjects) {
  ASSERT_TRUE(write_file_atomic(folder_ + "/large", large_));
  ASSERT_TRUE(write_file_atomic(folder_ + "/small", "abc"));
  std::shared_ptr<storage::ObjectStore> files = *storage::DirectoryStore::open(folder_);
  std::vector<Copy> copies;
  for (const char* key : {"large", "small"})
    copies.push_back({.source = files,
                      .info = *files->head(key),
                      .target = store_,
                      .target_key = std::string("up/") + key});
  ASSERT_TRUE(copy(copies));
  EXPECT_TRUE(*get_all(*store_, "up/large") == large_);
  EXPECT_EQ(*get_all(*store_, "up/small"), "abc");
}

TEST_F(CopierTest, AFileThatIsBrokenOffGoesOnWhereItWas) {
  ASSERT_TRUE(put_text(*store_, "k", large_));
  std::atomic<int> reads = 0;
  const auto flaky = std::make_shared<FaultyStore>(*store_, [&](const Call& call) -> Status {
    if (call.method == Method::kGetRange && ++reads > 5)
      return Error{Code::kUnavailable, "injected"};
    return Ok{};
  });
  CopierOptions one_by_one{.transfer = {.transfer_count_first = 1, .transfer_count_max = 1}};
  EXPECT_EQ(copy({into_file(flaky, "k", "file")}, one_by_one).error().code, Code::kUnavailable);
  EXPECT_FALSE(fs::exists(folder_ + "/file"));
  EXPECT_TRUE(fs::exists(partial_path(folder_ + "/file")));

  reads = 0;
  std::atomic<int> later_reads = 0;
  const auto counting = std::make_shared<FaultyStore>(*store_, [&](const Call& call) -> Status {
    later_reads += call.method == Method::kGetRange ? 1 : 0;
    return Ok{};
  });
  ASSERT_TRUE(copy({into_file(counting, "k", "file")}));
  EXPECT_EQ(later_reads, 12 - 5);
  EXPECT_TRUE(*read_file(folder_ + "/file") == large_);
  EXPECT_EQ(file_count(), 1U);
}

TEST_F(CopierTest, AnObjectThatChangesOnItsWayIntoAStoreLeavesNothingThere) {
  ASSERT_TRUE(put_text(*store_, "k", large_));
  const auto replacing = std::make_shared<FaultyStore>(*store_, [&](const Call& call) -> Status {
    if (call.method == Method::kGetRange && call.number == 6)
      YARD_TRY(put_text(*store_, "k", std::string(large_.size(), 'x')));
    return Ok{};
  });
  const auto target = std::make_shared<storage::MemoryStore>();
  const auto info = store_->head("k");
  ASSERT_TRUE(info);
  const Status copied =
      copy({{.source = replacing, .info = *info, .target = target, .target_key = "up"}});
  ASSERT_FALSE(copied);
  EXPECT_EQ(copied.error().code, Code::kCorrupt);
  EXPECT_FALSE(target->head("up"));
}

TEST_F(CopierTest, AnObjectThatChangedMeanwhileIsNotMixedAndLeavesNothing) {
  ASSERT_TRUE(put_text(*store_, "k", large_));
  const auto replacing = std::make_shared<FaultyStore>(*store_, [&](const Call& call) -> Status {
    if (call.method == Method::kGetRange && call.number == 6)
      YARD_TRY(put_text(*store_, "k", std::string(large_.size(), 'x')));
    return Ok{};
  });
  EXPECT_EQ(copy({into_file(replacing, "k", "file")}).error().code, Code::kCorrupt);
  EXPECT_EQ(file_count(), 0U);
}

TEST_F(CopierTest, AWrongChecksumOfTheWholeLeavesNothing) {
  ASSERT_TRUE(put_text(*store_, "k", large_));
  Copy wrong = into_file(store_, "k", "file");
  wrong.info.checksum = "CRC32C:AAAAAA==";
  EXPECT_EQ(copy({wrong}).error().code, Code::kCorrupt);
  EXPECT_EQ(file_count(), 0U);
}

TEST_F(CopierTest, APartThatRottedInAHiddenFileIsFoundByTheChecksum) {
  ASSERT_TRUE(put_text(*store_, "k", large_));
  Copy right = into_file(store_, "k", "file");
  right.info.checksum =
      "CRC32C:" + checksum_base64(ChecksumAlgorithm::kCrc32c, std::as_bytes(std::span(large_)));
  {
    auto file = PartialFile::open(right.target_path,
                                  {right.source_url() + " " + right.info.etag, large_.size(), kMiB},
                                  current_boot_id());
    ASSERT_TRUE(file);
    const std::string rotten(kMiB, 'r');
    ASSERT_TRUE(file->write(3, 0, std::as_bytes(std::span(rotten))));
    ASSERT_TRUE(file->mark_part(3));
  }
  EXPECT_EQ(copy({right}).error().code, Code::kCorrupt);
  EXPECT_EQ(file_count(), 0U);
  ASSERT_TRUE(copy({right}));  // from the start
  EXPECT_TRUE(*read_file(right.target_path) == large_);
}

TEST_F(CopierTest, OneFailureDoesNotHoldUpTheOthers) {
  std::vector<Copy> copies;
  for (int i = 0; i < 20; ++i) {
    const std::string key = "k" + std::to_string(i);
    ASSERT_TRUE(put_text(*store_, key, key));
    copies.push_back(into_file(store_, key, key));
  }
  ASSERT_TRUE(store_->remove("k7"));
  EXPECT_EQ(copy(copies).error().code, Code::kNotFound);
  EXPECT_EQ(good_count_, 19);
  EXPECT_EQ(bad_count_, 1);
  EXPECT_EQ(file_count(), 19U);
}

TEST_F(CopierTest, AFileInTheWayOfAFolderIsTold) {
  ASSERT_TRUE(put_text(*store_, "k", "x"));
  ASSERT_TRUE(write_file_atomic(folder_ + "/a", "file"));
  EXPECT_EQ(copy({into_file(store_, "k", "a/b")}).error().code, Code::kInvalidArgument);
  EXPECT_EQ(*read_file(folder_ + "/a"), "file");
}

TEST_F(CopierTest, AfterAStopEveryCopyIsToldAndWhatCameStays) {
  ASSERT_TRUE(put_text(*store_, "k", large_));
  ASSERT_TRUE(put_text(*store_, "small", "abc"));
  StopSource stop;
  const auto stopping = std::make_shared<FaultyStore>(*store_, [&](const Call& call) -> Status {
    if (call.method == Method::kGetRange && call.number == 6) stop.request();
    return Ok{};
  });
  std::vector<Copy> copies = {into_file(stopping, "k", "file")};
  for (int i = 0; i < 10; ++i) copies.push_back(into_file(store_, "small", std::to_string(i)));
  CopierOptions one_by_one{
      .transfer = {.transfer_count_first = 1, .transfer_count_max = 1, .stop = stop.token()}};
  EXPECT_EQ(copy(copies, one_by_one).error().code, Code::kCancelled);
  EXPECT_EQ(good_count_ + bad_count_, 11);
  EXPECT_FALSE(fs::exists(folder_ + "/file"));
  ASSERT_TRUE(copy({into_file(store_, "k", "file")}));
  EXPECT_TRUE(*read_file(folder_ + "/file") == large_);
}

TEST_F(CopierTest, ManyLargeFilesGoThroughLittleMemory) {
  std::vector<Copy> copies;
  ASSERT_TRUE(put_text(*store_, "k", large_));
  for (int i = 0; i < 66; ++i) copies.push_back(into_file(store_, "k", std::to_string(i)));
  ASSERT_TRUE(copy(copies, {.transfer = {.memory_bytes_max = 3 * kMiB}}));
  for (int i = 0; i < 66; i += 23) EXPECT_EQ(*read_file(folder_ + "/" + std::to_string(i)), large_);
  EXPECT_EQ(good_count_, 66);
}

}  // namespace
}  // namespace yard::transfer
