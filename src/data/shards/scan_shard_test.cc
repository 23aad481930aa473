#include <gtest/gtest.h>

#include "base/json.h"
#include "shards/bad_sample.h"
#include "shards/shard_index.h"
#include "shards/sidecar.h"
#include "shards/testing/tar_bytes.h"
#include "storage/memory_store.h"

namespace yard::shards {
namespace {

using testing::tar_end;
using testing::tar_member;

class ScanShardTest : public ::testing::Test {
 protected:
  // "key key | bad: key, ...", or the Error.
  std::string scan(const std::string& tar, bool group_by_key = false) {
    EXPECT_TRUE(storage::put_text(store_, "s.tar", tar));
    return scan_again(group_by_key);
  }
  std::string scan_again(bool group_by_key = false, const ShardIndex* expected = nullptr) {
    bad_.clear();
    auto scanned = scan_shard(store_, "s.tar",
                              {.group_by_key = group_by_key,
                               .on_bad = [&](const BadSample& sample) -> Status {
                                 bad_.push_back(sample);
                                 return Ok{};
                               },
                               .expected = expected});
    if (!scanned) return scanned.error().message;
    EXPECT_EQ(scanned->bad_count, bad_.size());
    std::string text;
    for (uint64_t i = 0; i < scanned->index.sample_count(); ++i)
      text += std::string(scanned->index.key(i)) +
              std::to_string(scanned->index.members(i).size()) + " ";
    text += "|";
    for (const BadSample& sample : bad_) {
      text += " " + (sample.key.empty() ? "?" : sample.key);
      EXPECT_NE(sample.reason.find("memory:/s.tar: offset"), std::string::npos) << sample.reason;
      EXPECT_FALSE(sample.bytes.empty());
    }
    return text;
  }

  storage::MemoryStore store_;
  std::vector<BadSample> bad_;
};

std::string pair_of(const std::string& key) {
  return tar_member(key + ".png", "picture") + tar_member(key + ".txt", "caption");
}

TEST_F(ScanShardTest, AWholeShardHasNoBadSample) {
  EXPECT_EQ(scan(pair_of("a") + pair_of("b") + tar_end()), "a2 b2 |");
}

TEST_F(ScanShardTest, OnlyTheSampleWithTwoMembersAlikeIsLeftOut) {
  EXPECT_EQ(scan(pair_of("a") + pair_of("b") + tar_member("b.TXT", "x") + pair_of("c") + tar_end()),
            "a2 c2 | b");
  EXPECT_NE(bad_[0].reason.find("one and the same"), std::string::npos);
  EXPECT_EQ(bad_[0].bytes.size(), 3U);
}

TEST_F(ScanShardTest, InterleavedMembersAreBadInBothHalvesUnlessGroupedByKey) {
  const std::string tar = tar_member("a.png", "1") + tar_member("b.png", "2") +
                          tar_member("a.txt", "3") + tar_member("b.txt", "4") + pair_of("c") +
                          tar_end();
  EXPECT_EQ(scan(tar), "c2 | a b");
  EXPECT_NE(bad_[0].reason.find("'a.png' and 'a.txt'"), std::string::npos) << bad_[0].reason;
  EXPECT_EQ(scan(tar, true), "a2 b2 c2 |");
  auto strict = scan_shard(store_, "s.tar");
  ASSERT_FALSE(strict);
  EXPECT_EQ(strict.error().code, Code::kCorrupt);
}

TEST_F(ScanShardTest, ADamagedHeaderSpoilsBothSamplesThatMayHaveLostAMember) {
  std::string tar = pair_of("a") + pair_of("b") + pair_of("c") + pair_of("d") + tar_end();
  std::string bad = tar;
  bad[2048 + 0] ^= 1;  // b.png: the sample of b.txt lacks it, and a may have had another
  EXPECT_EQ(scan(bad), "c2 d2 | ? a b");
  bad = tar;
  bad[2048 + 1024] ^= 1;  // b.txt
  EXPECT_EQ(scan(bad), "a2 d2 | ? b c");
  bad = tar;
  bad[0] ^= 1;
  EXPECT_EQ(scan(bad), "b2 c2 d2 | ? a");
}

TEST_F(ScanShardTest, DamageBetweenTwoMembersOfASampleSpoilsOnlyThatOne) {
  std::string tar = pair_of("a") + tar_member("b.png", "1") + tar_member("b.json", "2") +
                    tar_member("b.txt", "3") + pair_of("c") + tar_end();
  tar[2048 + 1024] ^= 1;
  EXPECT_EQ(scan(tar), "a2 c2 | ? b");
}

TEST_F(ScanShardTest, ANameThatMayBeCutSpoilsTheSampleAfterItToo) {
  // GNU tar writes a long name as a header of its own; without it the first 100 bytes stay.
  const std::string name = std::string(120, 'n') + ".png";
  std::string tar = pair_of("a") + tar_member("././@LongLink", name + '\0', 'L') +
                    tar_member(name.substr(0, 100), "x") +
                    tar_member("././@LongLink", std::string(120, 'n') + ".txt" + '\0', 'L') +
                    tar_member(name.substr(0, 100), "y") + pair_of("c") + tar_end();
  EXPECT_EQ(scan(tar), "a2 " + std::string(120, 'n') + "2 c2 |");
  tar[2048] ^= 1;
  const std::string scanned = scan(tar);
  EXPECT_TRUE(scanned.starts_with("c2 |") || scanned.starts_with("|")) << scanned;
}

TEST_F(ScanShardTest, ATruncatedShardKeepsTheSamplesBeforeTheCut) {
  const std::string tar = pair_of("a") + pair_of("b") + tar_end();
  EXPECT_EQ(scan(tar.substr(0, 2048 + 1024 + 512 + 3)), "a2 | b");  // in b.txt's content
  EXPECT_EQ(scan(tar.substr(0, 2048 + 1024 + 100)), "a2 | ? b");    // in its header
  EXPECT_EQ(scan(tar.substr(0, 2048)), "| ? a");                    // was there more? nobody knows
}

TEST_F(ScanShardTest, AContentThatIsNotTheIndexsIsBad) {
  ASSERT_EQ(scan(pair_of("a") + pair_of("b") + tar_end()), "a2 b2 |");
  const ShardIndex index = scan_shard(store_, "s.tar")->index;
  std::string tar = *storage::get_all(store_, "s.tar");
  tar[2048 + 512] ^= 1;
  ASSERT_TRUE(storage::put_text(store_, "s.tar", tar));
  EXPECT_EQ(scan_again(false, &index), "a2 | b");
  EXPECT_EQ(scan_again(), "a2 b2 |");
  auto strict = scan_shard(store_, "s.tar", {.expected = &index});
  ASSERT_FALSE(strict);
  EXPECT_NE(strict.error().message.find("'b.png'"), std::string::npos) << strict.error().message;
}

TEST_F(ScanShardTest, NamesThatLeadOutSpoilTheirSampleAlone) {
  EXPECT_EQ(scan(pair_of("a") + tar_member("../b.png", "x") + pair_of("c") + tar_end()),
            "a2 c2 | ../b");
}

TEST_F(ScanShardTest, AnErrorOfTheSinkEndsTheScan) {
  ASSERT_TRUE(storage::put_text(store_, "s.tar", tar_member("../b.png", "x") + tar_end()));
  auto scanned = scan_shard(store_, "s.tar", {.on_bad = [](const BadSample&) {
                              return Status(Error{Code::kExhausted, "enough"});
                            }});
  ASSERT_FALSE(scanned);
  EXPECT_EQ(scanned.error().message, "enough");
}

TEST_F(ScanShardTest, WhateverByteIsDamagedNoHalfSampleIsGivenOut) {
  const std::string tar = pair_of("a") + pair_of("b") + pair_of("c") + tar_end();
  for (size_t at = 0; at < tar.size(); ++at) {
    std::string bad = tar;
    bad[at] = char(bad[at] ^ 4);
    const std::string text = scan(bad);
    const std::string good = text.substr(0, text.find('|'));
    EXPECT_EQ(good.find('1'), std::string::npos) << at << ": " << text;
  }
}

TEST_F(ScanShardTest, ASidecarOfAnotherShardIsNotBelieved) {
  ASSERT_EQ(scan(pair_of("a") + pair_of("b") + tar_end()), "a2 b2 |");
  ASSERT_TRUE(storage::put_text(store_, "s.tar.idx", scan_shard(store_, "s.tar")->index.encode()));
  EXPECT_TRUE(*sidecar_of(store_, *store_.head("s.tar")));
  ASSERT_TRUE(storage::put_text(store_, "s.tar",
                                tar_member("x.png", "other") + tar_member("x.txt", "bytes") +
                                    tar_member("y.png", "and yet") +
                                    tar_member("y.txt", "another") + tar_end()));
  EXPECT_FALSE(*sidecar_of(store_, *store_.head("s.tar")));
  EXPECT_TRUE(*read_sidecar(store_, "s.tar"));
  EXPECT_FALSE(*read_sidecar(store_, "t.tar"));
}

TEST(QuarantineLineTest, NamesThatAreNoTextAreStillJson) {
  const std::string line = quarantine_line(
      {.shard = "s", .key = "\xff", .offset = 7, .reason = "r", .bytes = {{"m", 1, 2}}});
  ASSERT_TRUE(line.ends_with('\n'));
  const auto json = parse_json(line, "line");
  ASSERT_TRUE(json);
  EXPECT_EQ((*json)["offset"], 7);
  EXPECT_EQ((*json)["bytes"][0]["size_bytes"], 2);
}

}  // namespace
}  // namespace yard::shards
