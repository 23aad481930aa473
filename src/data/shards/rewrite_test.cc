#include "shards/rewrite.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "shards/sample_stream.h"
#include "shards/testing/compress.h"
#include "shards/testing/tar_bytes.h"
#include "storage/memory_store.h"

namespace yard::shards {
namespace {

using storage::MemoryStore;
using testing::tar_end;
using testing::tar_member;

std::string name_of(int i) {
  return "s" + std::to_string(1000 + i);
}

std::string tar_of(int begin, int end) {
  std::string tar;
  for (int i = begin; i < end; ++i)
    tar += tar_member(name_of(i) + ".png", "picture " + std::to_string(i)) +
           tar_member(name_of(i) + ".TXT", "caption " + std::to_string(i));
  return tar + tar_end();
}

class RewriteTest : public ::testing::Test {
 protected:
  void put(const std::string& key, const std::string& tar) {
    ASSERT_TRUE(storage::put_text(*source_, key, tar));
    sources_.push_back({source_, key});
  }
  Result<RewriteReport> run() { return rewrite(sources_, target_, options_, {}, {}); }
  void expect_error(Code code, const char* word) {
    const auto report = run();
    ASSERT_FALSE(report);
    EXPECT_EQ(report.error().code, code) << report.error().message;
    EXPECT_NE(report.error().message.find(word), std::string::npos) << report.error().message;
  }
  // Keys in order, every content checked.
  std::vector<std::string> keys_of(const std::vector<ShardSummary>& shards) {
    std::vector<std::string> keys;
    for (const ShardSummary& shard : shards) {
      auto stream = SampleStream::open(target_, shard.key);
      for (;;) {
        const auto sample = stream->next();
        EXPECT_TRUE(sample);
        if (!sample || !*sample) break;
        keys.push_back((*sample)->key);
        const std::string number =
            std::to_string(std::stoi(keys.back().substr(keys.back().rfind('s') + 1)) - 1000);
        EXPECT_EQ((*sample)->members.size(), 2U);
        EXPECT_EQ((*sample)->members[1].extension, "TXT");
        const auto& content = (*sample)->members[0].content;
        EXPECT_EQ(std::string(reinterpret_cast<const char*>(content.data()), content.size()),
                  "picture " + number);
      }
    }
    return keys;
  }
  static std::vector<std::string> names(int begin, int end) {
    std::vector<std::string> keys;
    for (int i = begin; i < end; ++i) keys.push_back(name_of(i));
    return keys;
  }

  std::shared_ptr<MemoryStore> source_ = std::make_shared<MemoryStore>();
  MemoryStore target_;
  std::vector<ShardSource> sources_;
  RewriteOptions options_;
};

TEST_F(RewriteTest, AnotherSizeKeepsSamplesAndOrder) {
  put("a.tar", tar_of(0, 7));
  put("b.tar", tar_of(7, 20));
  options_.set.shards.size_bytes_max = 1024 + 5 * 2048;
  const auto report = run();
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(report->parts[0].shards.size(), 4U);
  EXPECT_EQ(keys_of(report->parts[0].shards), names(0, 20));
}

TEST_F(RewriteTest, CompressedSourcesGiveTheSameBytesAsPlainOnes) {
  put("a.tar", tar_of(0, 7));
  put("b.tar", tar_of(7, 20));
  options_.set.shards.size_bytes_max = 1024 + 5 * 2048;
  const auto plain = run();
  ASSERT_TRUE(plain);
  std::map<std::string, std::string> expected;
  for (const auto& shard : plain->parts[0].shards)
    expected[shard.key] = *storage::get_all(target_, shard.key);
  ASSERT_TRUE(storage::put_text(*source_, "a.tar", testing::gzipped(tar_of(0, 7))));
  ASSERT_TRUE(storage::put_text(*source_, "b.tar", testing::zstd_compressed(tar_of(7, 20))));
  expect_error(Code::kInvalidArgument, "--replace");
  options_.set.replace = true;
  const auto report = run();
  ASSERT_TRUE(report) << report.error().message;
  for (const auto& shard : report->parts[0].shards)
    EXPECT_EQ(*storage::get_all(target_, shard.key), expected.at(shard.key));
  EXPECT_EQ(report->parts[0].shards.size(), expected.size());
  options_.shuffle_seed = 1;
  expect_error(Code::kInvalidArgument, "--shuffle");
}

TEST_F(RewriteTest, AShuffleIsAPermutationThatTheSeedDecides) {
  put("a.tar", tar_of(0, 40));
  options_.set.replace = true;
  options_.shuffle_seed = 3;
  const auto first = keys_of(run()->parts[0].shards);
  EXPECT_EQ(keys_of(run()->parts[0].shards), first);
  options_.shuffle_seed = 4;
  const auto second = keys_of(run()->parts[0].shards);
  EXPECT_NE(first, second);
  EXPECT_NE(first, names(0, 40));
  const auto all = names(0, 40);
  EXPECT_EQ(std::set<std::string>(first.begin(), first.end()),
            std::set<std::string>(all.begin(), all.end()));
}

TEST_F(RewriteTest, KeysOfDifferentShardsNeverMerge) {
  put("x/a.tar", tar_of(0, 3));
  put("x/b.tar", tar_of(0, 3));
  expect_error(Code::kInvalidArgument, "--prefix-keys");
  options_.prefix_keys = true;
  const auto report = run();
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(
      keys_of(report->parts[0].shards),
      (std::vector<std::string>{"a/s1000", "a/s1001", "a/s1002", "b/s1000", "b/s1001", "b/s1002"}));
}

TEST_F(RewriteTest, BadSamplesAreLeftOutWholeAndToldInOrder) {
  std::string bad = tar_of(0, 5);
  bad[2 * 2048 + 1024] ^= 1;  // s1002.TXT's header
  put("a.tar", bad);
  put("b.tar", tar_of(5, 7).substr(0, 2048 + 515));  // s1006.png cut in its content
  expect_error(Code::kCorrupt, "a.tar: offset 5120");
  std::string told;
  options_.on_bad = [&](const BadSample& sample) -> Status {
    told += sample.key + " ";
    return Ok{};
  };
  const auto report = run();
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(keys_of(report->parts[0].shards),
            (std::vector<std::string>{"s1000", "s1001", "s1004", "s1005"}));
  EXPECT_EQ(told, " s1002 s1003 s1006 ") << "one of a lost stretch, then those it spoils";
}

TEST_F(RewriteTest, AContentThatIsNotItsIndexsIsCorrupt) {
  put("a.tar", tar_of(0, 2));
  auto scanned = scan_shard(*source_, "a.tar");
  ShardIndexBuilder builder;
  for (const auto& member : scanned->index.members(0))
    ASSERT_TRUE(builder.add(scanned->index.member_name(0, member), member.offset, member.size_bytes,
                            member.crc32c ^ 1));
  ASSERT_TRUE(storage::put_text(*source_, "a.tar.idx", builder.finish(scanned->shard).encode()));
  expect_error(Code::kCorrupt, "'s1000.png'");
  EXPECT_TRUE(storage::list_all(target_, "")->empty());
}

TEST_F(RewriteTest, ASourceIsNeverReplaced) {
  put("shard-000000.tar", tar_of(0, 2));
  options_.set.replace = true;
  const auto report = rewrite(sources_, *source_, options_, {}, {});
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().code, Code::kInvalidArgument);
  EXPECT_EQ(*storage::get_all(*source_, "shard-000000.tar"), tar_of(0, 2));
}

TEST_F(RewriteTest, ASplitGivesEverySampleToOnePartInItsOrder) {
  put("a.tar", tar_of(0, 100));
  options_.parts = {{.name = "train", .weight = 3}, {.name = "val", .weight = 1}};
  options_.set.shards.prefix = "out/shard";
  const auto report = run();
  ASSERT_TRUE(report) << report.error().message;
  ASSERT_EQ(report->parts.size(), 2U);
  EXPECT_EQ(report->parts[1].shards[0].key, "out/val-000000.tar");
  std::vector<std::string> all = keys_of(report->parts[0].shards);
  const auto val = keys_of(report->parts[1].shards);
  EXPECT_TRUE(std::ranges::is_sorted(all) && std::ranges::is_sorted(val));
  EXPECT_GT(val.size(), 10U);
  EXPECT_LT(val.size(), 45U);
  all.insert(all.end(), val.begin(), val.end());
  std::ranges::sort(all);
  EXPECT_EQ(all, names(0, 100));
}

TEST_F(RewriteTest, ACompressedShardIsSplitAsThePlainOneIs) {
  put("a.tar", tar_of(0, 30));
  options_.parts = {{.name = "val", .count = 7}, {.name = "train"}};
  const auto plain = run();
  ASSERT_TRUE(plain);
  const auto val = keys_of(plain->parts[0].shards);
  EXPECT_EQ(val.size(), 7U);
  ASSERT_TRUE(storage::put_text(*source_, "a.tar", testing::gzipped(tar_of(0, 30))));
  options_.set.replace = true;
  EXPECT_EQ(keys_of(run()->parts[0].shards), val);
}

TEST_F(RewriteTest, NamesOfAFolderPackedAsADotLoseIt) {
  put("a.tar", tar_member("./s1000.png", "picture 0") + tar_member("./s1000.TXT", "c") + tar_end());
  const auto report = run();
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(keys_of(report->parts[0].shards), names(0, 1));
}

TEST_F(RewriteTest, InterleavedSamplesAreGroupedOnRequest) {
  const std::string tar = tar_member("s1000.png", "picture 0") +
                          tar_member("s1001.png", "picture 1") + tar_member("s1000.TXT", "c") +
                          tar_member("s1001.TXT", "d") + tar_end();
  put("a.tar", tar);
  expect_error(Code::kCorrupt, "lie between them");
  options_.group_by_key = true;
  EXPECT_EQ(keys_of(run()->parts[0].shards), names(0, 2));
  ASSERT_TRUE(storage::put_text(*source_, "a.tar", testing::zstd_compressed(tar)));
  options_.set.replace = true;
  EXPECT_EQ(keys_of(run()->parts[0].shards), names(0, 2));
}

std::vector<std::string_view> views_of(const std::vector<std::string>& keys) {
  return {keys.begin(), keys.end()};
}

TEST(SplitKeysTest, AKeysPartDependsOnItAndTheSeedAlone) {
  std::vector<std::string> keys;
  for (int i = 0; i < 2000; ++i) keys.push_back("k" + std::to_string(i));
  const SplitPart parts[] = {{.name = "a", .weight = 0.9}, {.name = "b", .weight = 0.1}};
  const auto chosen = split_keys(views_of(keys), parts, 1);
  ASSERT_TRUE(chosen);
  const auto b_count = std::ranges::count(*chosen, 1U);
  EXPECT_GT(b_count, 150);
  EXPECT_LT(b_count, 250);
  const std::vector<std::string> fewer(keys.rbegin(), keys.rbegin() + 100);
  const auto again = split_keys(views_of(fewer), parts, 1);
  for (size_t i = 0; i < fewer.size(); ++i) EXPECT_EQ((*again)[i], (*chosen)[keys.size() - 1 - i]);
  EXPECT_NE(*split_keys(views_of(keys), parts, 2), *chosen);
}

TEST(SplitKeysTest, PartsOfCountsHaveThatManyWhateverTheOrder) {
  std::vector<std::string> keys;
  for (int i = 0; i < 100; ++i) keys.push_back("k" + std::to_string(i));
  const SplitPart parts[] = {
      {.name = "val", .count = 10}, {.name = "rest"}, {.name = "test", .count = 20}};
  const auto chosen = split_keys(views_of(keys), parts, 1);
  ASSERT_TRUE(chosen);
  EXPECT_EQ(std::ranges::count(*chosen, 0U), 10);
  EXPECT_EQ(std::ranges::count(*chosen, 1U), 70);
  EXPECT_EQ(std::ranges::count(*chosen, 2U), 20);
  std::vector<std::string> reversed(keys.rbegin(), keys.rend());
  const auto again = split_keys(views_of(reversed), parts, 1);
  for (size_t i = 0; i < keys.size(); ++i) EXPECT_EQ((*again)[i], (*chosen)[99 - i]);
}

TEST(SplitKeysTest, AKeyThatIsThereTwiceIsInOnePart) {
  std::vector<std::string> keys;
  for (int i = 0; i < 100; ++i) keys.push_back("k" + std::to_string(i / 2));
  for (uint64_t count = 1; count < 50; ++count) {
    const SplitPart parts[] = {{.name = "val", .count = count}, {.name = "rest"}};
    const auto chosen = split_keys(views_of(keys), parts, 1);
    for (size_t i = 0; i < 100; i += 2) EXPECT_EQ((*chosen)[i], (*chosen)[i + 1]);
  }
}

TEST(SplitKeysTest, PartsThatMakeNoSenseAreRefused) {
  const std::vector<std::string_view> keys = {"a", "b"};
  const std::vector<std::vector<SplitPart>> bad = {
      {{.name = "a", .weight = 1}, {.name = "b", .count = 1}},
      {{.name = "a", .weight = 1}, {.name = "b"}},
      {{.name = "a"}, {.name = "b"}},
      {{.name = "a", .count = 1}, {.name = "b", .count = 1}},
      {{.name = "a", .weight = 1}, {.name = "a", .weight = 1}},
      {{.name = "a", .weight = 1}, {.name = "b", .weight = 0}},
      {{.name = "a", .weight = 1}, {.name = "", .weight = 1}},
      {{.name = "a", .count = 3}, {.name = "b"}}};
  for (const auto& parts : bad) {
    const auto chosen = split_keys(keys, parts, 0);
    ASSERT_FALSE(chosen);
    EXPECT_EQ(chosen.error().code, Code::kInvalidArgument);
  }
}

}  // namespace
}  // namespace yard::shards
