#include "shards/pack.h"

#include <gtest/gtest.h>

#include "shards/shard_reader.h"
#include "storage/memory_store.h"
#include "storage/testing/faulty_store.h"

namespace yard::shards {
namespace {

class PackTest : public ::testing::Test {
 protected:
  void put(std::string_view key, std::string_view content = "x") {
    ASSERT_TRUE(storage::put_text(source_, key, content));
  }
  Result<PackReport> run() { return pack(source_, target_, options_, {}, {}); }
  void expect_error(Code code, std::initializer_list<const char*> words) {
    auto report = run();
    ASSERT_FALSE(report);
    EXPECT_EQ(report.error().code, code) << report.error().message;
    for (const char* word : words)
      EXPECT_NE(report.error().message.find(word), std::string::npos) << report.error().message;
  }
  // "key: ext=content ...; ..." of the first shard.
  std::string first_shard() {
    auto reader = ShardReader::open(target_, "shard-000000.tar");
    if (!reader) return reader.error().message;
    std::string text;
    for (uint64_t i = 0; i < reader->index().sample_count(); ++i) {
      text += std::string(reader->index().key(i)) + ":";
      for (const auto& member : reader->index().members(i)) {
        std::vector<std::byte> buffer;
        auto contents = reader->read(i, std::span(&member, 1), buffer);
        if (!contents) return contents.error().message;
        text += " " + std::string(reader->index().extension(member)) + "=" +
                std::string(reinterpret_cast<const char*>((*contents)[0].data()),
                            (*contents)[0].size());
      }
      text += "; ";
    }
    return text;
  }
  std::string target_keys() {
    std::string keys;
    const auto objects = storage::list_all(target_, "");
    for (const auto& object : *objects) keys += object.key + " ";
    return keys;
  }

  storage::MemoryStore source_, target_;
  PackOptions options_;
};

TEST_F(PackTest, FilesThatShareANameAreOneSampleInOrder) {
  put("b.png", "2");
  put("b.txt", "two");
  put("a.PNG", "1");
  put("a.json", "{}");
  put("a.txt", "one");
  put("d/a.jpg", "3");
  put("d/a.txt", "three");
  // Sorts between "a.json" and "a.txt" and must not part them.
  put("a.k/x.png", "4");
  put("a.k/x.txt", "four");
  auto report = run();
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(report->sample_count, 4U);
  EXPECT_EQ(report->shards.size(), 1U);
  EXPECT_EQ(first_shard(),
            "a: png=1 json={} txt=one; a.k/x: png=4 txt=four; b: png=2 txt=two; "
            "d/a: jpg=3 txt=three; ");
}

TEST_F(PackTest, APictureWithoutCaptionFailsByNameOrIsLeftOut) {
  put("a.png");
  put("a.txt");
  put("d/b.jpg");
  expect_error(Code::kInvalidArgument, {"d/b.jpg", "d/b.txt", "--missing-caption"});
  EXPECT_EQ(target_keys(), "");
  options_.missing_caption = MissingPolicy::kSkip;
  auto report = run();
  ASSERT_TRUE(report);
  EXPECT_EQ(report->without_caption, std::vector<std::string>{"d/b"});
  EXPECT_EQ(first_shard(), "a: png=x txt=x; ");
}

TEST_F(PackTest, ACaptionWithoutPictureFailsUnlessThereAreNoPicturesAtAll) {
  put("a.txt");
  ASSERT_TRUE(run());
  EXPECT_EQ(first_shard(), "a: txt=x; ");
  put("b.png");
  put("b.txt");
  options_.replace = true;
  expect_error(Code::kInvalidArgument, {"a.txt", "--missing-picture"});
  options_.missing_picture = MissingPolicy::kSkip;
  auto report = run();
  ASSERT_TRUE(report);
  EXPECT_EQ(report->without_picture, std::vector<std::string>{"a"});
}

TEST_F(PackTest, FilesOfNoSampleAreReported) {
  for (const char* key : {"a.png", "a.txt", "LICENSE", ".DS_Store", "d/.DS_Store", ".git/x.png"})
    put(key);
  auto report = run();
  ASSERT_TRUE(report);
  EXPECT_EQ(report->sample_count, 1U);
  EXPECT_EQ(report->ignored,
            (std::vector<std::string>{".DS_Store", ".git/x.png", "LICENSE", "d/.DS_Store"}));
}

TEST_F(PackTest, OnlyTheExtensionsAskedForAreTaken) {
  for (const char* key : {"a.png", "a.txt", "a.json"}) put(key);
  options_.extensions = {"png", "txt"};
  ASSERT_TRUE(run());
  EXPECT_EQ(first_shard(), "a: png=x txt=x; ");
}

TEST_F(PackTest, ExtensionsThatDifferInCaseAloneAreNamed) {
  put("a.PNG");
  put("a.png");
  expect_error(Code::kInvalidArgument, {"'a.PNG'", "'a.png'"});
}

TEST_F(PackTest, NothingToPackIsAnError) {
  expect_error(Code::kInvalidArgument, {"memory:", "nothing"});
  put("README");
  expect_error(Code::kInvalidArgument, {"nothing"});
}

TEST_F(PackTest, ShardsThatAreThereAreReplacedOnlyOnRequestAndNoneIsLeftOver) {
  for (int i = 0; i < 6; ++i) {
    put("a" + std::to_string(i) + ".png");
    put("a" + std::to_string(i) + ".txt");
  }
  options_.shards.size_bytes_max = 5120;  // two samples
  ASSERT_TRUE(run());
  ASSERT_TRUE(storage::put_text(target_, "shard-x.tar", "somebody else's"));
  expect_error(Code::kInvalidArgument, {"shard-000000.tar", "--replace", "--prefix"});
  options_.replace = true;
  options_.shards.size_bytes_max = 9216;  // four
  ASSERT_TRUE(run());
  EXPECT_EQ(target_keys(),
            "shard-000000.tar shard-000000.tar.idx shard-000001.tar shard-000001.tar.idx "
            "shard-x.tar ");
}

TEST_F(PackTest, AFileThatChangesMeanwhileIsCorrupt) {
  put("a.png");
  put("a.txt");
  storage::testing::FaultyStore changing(
      source_, [&](const storage::testing::Call& call) -> Status {
        if (call.method == storage::testing::Method::kGetRange && call.key == "a.txt")
          put("a.txt", "y");
        return Ok{};
      });
  auto report = pack(changing, target_, options_, {}, {});
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().code, Code::kCorrupt);
  EXPECT_EQ(target_keys(), "");
}

TEST_F(PackTest, AStopLeavesNoHalfShard) {
  put("a.png");
  put("a.txt");
  StopSource source;
  source.request();
  auto report = pack(source_, target_, options_, source.token(), {});
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().code, Code::kCancelled);
  EXPECT_EQ(target_keys(), "");
}

TEST_F(PackTest, ProgressCountsUpToTheEnd) {
  for (const char* key : {"a.png", "a.txt", "b.png", "b.txt"}) put(key);
  std::string seen;
  ASSERT_TRUE(pack(source_, target_, options_, {}, [&](const PackProgress& at) {
    seen += std::to_string(at.samples_done) + "/" + std::to_string(at.sample_count) + " ";
  }));
  EXPECT_EQ(seen, "1/2 2/2 ");
}

}  // namespace
}  // namespace yard::shards
