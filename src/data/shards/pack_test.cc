#include "shards/pack.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>

#include "shards/shard_index.h"
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
  Result<PackReport> run() { return pack(tree(), target_, options_, {}, {}); }
  PackTree tree() { return tree_of(source_); }
  static PackTree tree_of(storage::ObjectStore& store, const std::string& prefix = "") {
    return {std::shared_ptr<storage::ObjectStore>(std::shared_ptr<void>(), &store), prefix};
  }
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
  auto report = pack(tree_of(changing), target_, options_, {}, {});
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().code, Code::kCorrupt);
  EXPECT_EQ(target_keys(), "");
}

TEST_F(PackTest, AStopLeavesNoHalfShard) {
  put("a.png");
  put("a.txt");
  StopSource source;
  source.request();
  auto report = pack(tree(), target_, options_, source.token(), {});
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().code, Code::kCancelled);
  EXPECT_EQ(target_keys(), "");
}

TEST_F(PackTest, ProgressCountsUpToTheEnd) {
  for (const char* key : {"a.png", "a.txt", "b.png", "b.txt"}) put(key);
  options_.shards.size_bytes_max = 3072;  // one sample
  std::vector<uint64_t> seen;
  ASSERT_TRUE(pack(tree(), target_, options_, {}, [&](const PackProgress& at) {
    EXPECT_EQ(at.sample_count, 2U);
    seen.push_back(at.samples_done);
  }));
  ASSERT_FALSE(seen.empty());
  EXPECT_EQ(seen.back(), 2U);
  EXPECT_EQ(std::ranges::adjacent_find(seen, std::ranges::greater_equal{}), seen.end());
}

TEST_F(PackTest, OnlyWhatLiesUnderThePrefixIsPackedByItsRelativeName) {
  for (const char* key : {"in/a.png", "in/a.txt", "out/b.png", "in"}) put(key);
  ASSERT_TRUE(pack(tree_of(source_, "in/"), target_, options_, {}, {}));
  EXPECT_EQ(first_shard(), "a: png=x txt=x; ");
}

TEST_F(PackTest, WhatIsPackedIsWhatShardWriterWouldWrite) {
  // Sizes around the tar's block and the pipeline's, and a name that needs a pax header.
  std::string content(5 << 20, 'x');
  for (size_t i = 0; i < content.size(); ++i) content[i] = char(i * 2654435761U >> 24);
  const size_t sizes[] = {0,      1, 511, 512, 513, 3000, (2 << 20) - 512, 2 << 20, (2 << 20) + 1,
                          5 << 20};
  storage::MemoryStore expected;
  options_.shards.size_bytes_max = 6 << 20;
  auto writer = ShardWriter::create(expected, options_.shards);
  for (size_t i = 0; i < std::size(sizes); ++i) {
    const std::string key = (i % 3 == 0 ? "d/" + std::string(150, 'k') : "k") + std::to_string(i);
    put(key + ".png", content.substr(0, sizes[i]));
    put(key + ".txt", key);
  }
  std::map<std::string, std::string> texts;
  const auto listed = storage::list_all(source_, "");
  for (const auto& object : *listed) texts[object.key] = *storage::get_all(source_, object.key);
  for (auto it = texts.begin(); it != texts.end();) {
    const std::string key = it->first.substr(0, it->first.size() - 4);
    const auto png = std::as_bytes(std::span((it++)->second));
    const auto txt = std::as_bytes(std::span((it++)->second));
    const NewMember members[] = {{"png", png}, {"txt", txt}};
    ASSERT_TRUE(writer->add(key, members));
  }
  ASSERT_TRUE(writer->finish());
  auto report = run();
  ASSERT_TRUE(report) << report.error().message;
  ASSERT_GT(report->shards.size(), 2U);
  for (const ShardSummary& shard : report->shards) {
    EXPECT_EQ(*storage::get_all(target_, shard.key), *storage::get_all(expected, shard.key));
    const auto ours = ShardIndex::decode(*storage::get_all(target_, index_key(shard.key)), "ours");
    const auto theirs =
        ShardIndex::decode(*storage::get_all(expected, index_key(shard.key)), "theirs");
    EXPECT_TRUE(ours->same_content(*theirs));
    EXPECT_EQ(*storage::get_all(target_, index_key(shard.key)), ours->encode());
  }
}

// Whichever call fails: no half shard, and the same run goes on to the same bytes.
TEST_F(PackTest, ARunThatWasBrokenOffAnywhereGoesOnToTheSameBytes) {
  for (int i = 0; i < 6; ++i) {
    put("a" + std::to_string(i) + ".png", std::string(600, char('a' + i)));
    put("a" + std::to_string(i) + ".txt");
  }
  options_.shards.size_bytes_max = 6656;  // two samples
  storage::MemoryStore whole;
  ASSERT_TRUE(pack(tree(), whole, options_, {}, {}));
  const auto wanted = storage::list_all(whole, "");
  ASSERT_EQ(wanted->size(), 6U);
  uint64_t failing = 0, resumed = 0;
  for (std::atomic<bool> failed = true; failed; ++failing) {
    storage::MemoryStore target;
    failed = false;
    storage::testing::FaultyStore faulty(target, [&](const storage::testing::Call& call) -> Status {
      if (call.number < failing) return Ok{};
      failed = true;
      return Error{Code::kUnavailable, "injected"};
    });
    const bool is_done = bool(pack(tree(), faulty, options_, {}, {}));
    EXPECT_EQ(is_done, !failed);
    const auto objects = storage::list_all(target, "");
    for (const auto& object : *objects)
      if (object.key.ends_with(".tar")) {
        EXPECT_EQ(*storage::get_all(target, object.key), *storage::get_all(whole, object.key));
      }
    options_.replace = !failed;  // a run that ended is not gone on with
    auto again = pack(tree(), target, options_, {}, {});
    ASSERT_TRUE(again) << failing << ": " << again.error().message;
    resumed += again->resumed_count;
    const auto found = storage::list_all(target, "");
    ASSERT_EQ(found->size(), wanted->size()) << failing;
    for (const auto& object : *wanted)
      if (object.key.ends_with(".tar")) {
        EXPECT_EQ(*storage::get_all(target, object.key), *storage::get_all(whole, object.key));
      }
  }
  EXPECT_GT(failing, 15U);
  EXPECT_GT(resumed, 5U);
}

TEST_F(PackTest, AnotherRunsRestIsNotGoneOnWith) {
  for (const char* key : {"a.png", "a.txt", "b.png", "b.txt"}) put(key);
  options_.shards.size_bytes_max = 3072;
  storage::testing::FaultyStore broken(target_, [&](const storage::testing::Call& call) -> Status {
    if (call.key == "shard-000001.tar") return Error{Code::kExhausted, "full"};
    return Ok{};
  });
  auto first = pack(tree(), broken, options_, {}, {});
  ASSERT_FALSE(first);
  EXPECT_NE(first.error().message.find("the same command goes on"), std::string::npos);
  put("a.txt", "another caption");
  expect_error(Code::kInvalidArgument, {"shard-000000.tar", "broken off", "--replace"});
  options_.replace = true;
  ASSERT_TRUE(run());
  EXPECT_EQ(target_keys(),
            "shard-000000.tar shard-000000.tar.idx shard-000001.tar shard-000001.tar.idx ");
}

TEST_F(PackTest, AKeyThatNoShardCanHoldIsRefusedOrToldOf) {
  put("a.png");
  put("a.txt");
  put("d/\n.png");
  put("d/\n.txt");
  expect_error(Code::kInvalidArgument, {"line break"});
  std::string told;
  options_.on_bad = [&](const BadSample& bad) -> Status {
    told += bad.key;
    return Ok{};
  };
  ASSERT_TRUE(run());
  EXPECT_EQ(told, "d/\n");
  EXPECT_EQ(first_shard(), "a: png=x txt=x; ");
}

class ManifestTest : public PackTest {
 protected:
  Result<PackReport> pack_lines(const std::string& lines) {
    const auto open = [&](const std::string& url) -> Result<storage::Location> {
      return storage::Location{tree().store, url};
    };
    return pack(PackManifest{"m.jsonl", lines, open}, target_, options_, {}, {});
  }
  void expect_bad(const std::string& lines, Code code, std::initializer_list<const char*> words) {
    const auto report = pack_lines(lines);
    ASSERT_FALSE(report) << lines;
    EXPECT_EQ(report.error().code, code) << report.error().message;
    for (const char* word : words)
      EXPECT_NE(report.error().message.find(word), std::string::npos) << report.error().message;
  }
};

TEST_F(ManifestTest, FilesTextsAndMetadataBecomeMembersInTheOrderOfTheLines) {
  put("raw/7.jpg", "picture");
  ASSERT_TRUE(pack_lines(
      R"({"key": "z/7", "files": {"jpg": "raw/7.jpg"}, "text": {"txt": "a cat"}, "json": {"w": 1, "h": [2, null]}})"
      "\n\n"
      R"({"key": "a", "files": {"seg.PNG": "raw/7.jpg"}})"));
  EXPECT_EQ(first_shard(), R"(z/7: jpg=picture json={"h":[2,null],"w":1} txt=a cat; )"
                           "a: seg.png=picture; ");
}

TEST_F(ManifestTest, WhatIsWrongIsNamedWithItsLine) {
  put("f");
  const std::string good = R"({"key": "a", "files": {"jpg": "f"}})"
                           "\n";
  expect_bad(good + "{", Code::kInvalidArgument, {"m.jsonl:2"});
  expect_bad(good + R"({"key": "b", "file": {}})", Code::kInvalidArgument, {":2", "'files'"});
  expect_bad(good + R"({"files": {"jpg": "f"}})", Code::kInvalidArgument, {":2", "key"});
  expect_bad(good + R"({"key": "b"})", Code::kInvalidArgument, {":2", "no members"});
  expect_bad(good + R"({"key": "b", "files": {"jpg": 3}})", Code::kInvalidArgument, {":2", "jpg"});
  expect_bad(good + R"({"key": "b", "json": 1, "text": {"JSON": ""}})", Code::kInvalidArgument,
             {":2", "'json'"});
  expect_bad(good + good, Code::kInvalidArgument, {":2", "'a'", "line 1"});
  expect_bad(good + R"({"key": "b", "files": {"jpg": "none"}})", Code::kNotFound, {":2", "none"});
  expect_bad(good + R"({"key": "b.c", "text": {"txt": ""}})", Code::kInvalidArgument,
             {":2", "dot"});
  EXPECT_EQ(target_keys(), "");
}

TEST_F(ManifestTest, SamplesOfMissingFilesAreLeftOutWhereAsked) {
  put("f");
  std::vector<BadSample> bad;
  options_.on_bad = [&](const BadSample& sample) -> Status {
    bad.push_back(sample);
    return Ok{};
  };
  ASSERT_TRUE(pack_lines(R"({"key": "b", "files": {"jpg": "none"}})"
                         "\n"
                         R"({"key": "a", "files": {"jpg": "f"}})"));
  EXPECT_EQ(first_shard(), "a: jpg=x; ");
  ASSERT_EQ(bad.size(), 1U);
  EXPECT_EQ(bad[0].key, "b");
  EXPECT_EQ(bad[0].offset, 1U);
}

}  // namespace
}  // namespace yard::shards
