#include "shards/sample_stream.h"

#include <gtest/gtest.h>

#include "shards/testing/compress.h"
#include "shards/testing/tar_bytes.h"
#include "storage/memory_store.h"

namespace yard::shards {
namespace {

using testing::tar_end;
using testing::tar_member;

class SampleStreamTest : public ::testing::Test {
 protected:
  void put(const std::string& tar) { ASSERT_TRUE(storage::put_text(store_, "s.tar", tar)); }
  std::string read(const SampleStreamOptions& options = {}) {
    auto stream = SampleStream::open(store_, "s.tar", options);
    if (!stream) return "error: " + stream.error().message;
    std::string text;
    for (;;) {
      const auto sample = stream->next();
      if (!sample) return text + "error: " + sample.error().message;
      if (!*sample) return text;
      text += (*sample)->key + ":";
      for (const auto& member : (*sample)->members)
        text += " " + member.extension + "=" +
                std::string(reinterpret_cast<const char*>(member.content.data()),
                            member.content.size());
      text += "; ";
    }
  }
  BadSampleSink skip() {
    return [this](const BadSample& sample) -> Status {
      skipped_ += sample.key + " ";
      return Ok{};
    };
  }

  storage::MemoryStore store_;
  std::string skipped_;
};

const std::string kInterleaved = tar_member("a.png", "1") + tar_member("b.png", "2") +
                                 tar_member("a.txt", "3") + tar_member("c.png", "4") + tar_end();

TEST_F(SampleStreamTest, SamplesComeInOrderPlainOrCompressed) {
  const std::string tar = tar_member("a.png", "1") + tar_member("a.TXT", "2") +
                          tar_member("README", "x") + tar_member("b.png", "3") + tar_end();
  for (const std::string& bytes : {tar, testing::gzipped(tar), testing::zstd_compressed(tar)}) {
    put(bytes);
    EXPECT_EQ(read(), "a: png=1 TXT=2; b: png=3; ");
    EXPECT_EQ(read({.on_bad = skip()}), "a: png=1 TXT=2; b: png=3; ");
  }
  put(tar_end());
  EXPECT_EQ(read(), "");
}

TEST_F(SampleStreamTest, InterleavedMembersAreAnErrorOrGroupedOrLeftOut) {
  put(kInterleaved);
  const std::string strict = read();
  EXPECT_NE(strict.find("error: memory:/s.tar: offset 2560"), std::string::npos) << strict;
  EXPECT_NE(strict.find("'a.txt'"), std::string::npos);
  EXPECT_EQ(read({.group_by_key = true}), "b: png=2; a: png=1 txt=3; c: png=4; ");
  EXPECT_EQ(read({.on_bad = skip()}), "b: png=2; c: png=4; ");
  EXPECT_EQ(skipped_, "a ");
  put(testing::gzipped(kInterleaved));
  EXPECT_EQ(read({.group_by_key = true}), "b: png=2; a: png=1 txt=3; c: png=4; ");
}

TEST_F(SampleStreamTest, NoPartOfABadSampleIsGivenOut) {
  std::string tar = tar_member("a.png", "1") + tar_member("b.png", "2") + tar_member("b.txt", "3") +
                    tar_member("c.png", "4") + tar_member("d.png", "5") + tar_end();
  tar[2048] ^= 1;  // b.txt
  put(tar);
  EXPECT_EQ(read({.on_bad = skip()}), "a: png=1; d: png=5; ");
  EXPECT_NE(read().find("error: memory:/s.tar: offset 2048"), std::string::npos);
}

TEST_F(SampleStreamTest, AContentThatDiffersFromTheIndexIsAnError) {
  std::string tar = tar_member("a.png", "1") + tar_member("b.png", "2") + tar_end();
  put(tar);
  // An index that was made of other bytes under this very version.
  auto scanned = scan_shard(store_, "s.tar");
  ShardIndexBuilder builder;
  ASSERT_TRUE(builder.add("a.png", 512, 1, scanned->index.members(0)[0].crc32c));
  ASSERT_TRUE(builder.add("b.png", 1536, 1, 7));
  ASSERT_TRUE(storage::put_text(store_, "s.tar.idx", builder.finish(scanned->shard).encode()));
  const std::string text = read();
  EXPECT_TRUE(text.starts_with("error: memory:/s.tar: offset 1536")) << text;
  EXPECT_EQ(read({.on_bad = skip()}), "a: png=1; ");
  EXPECT_EQ(skipped_, "b ");
}

TEST_F(SampleStreamTest, TwoMembersAlikeAreNamed) {
  put(tar_member("a.png", "1") + tar_member("a.PNG", "2") + tar_end());
  EXPECT_NE(read().find("'a.png' and 'a.PNG'"), std::string::npos);
}

TEST_F(SampleStreamTest, MoreThanTheLimitIsAnErrorThatNamesTheMember) {
  put(tar_member("a.png", std::string(100, 'x')) + tar_member("a.txt", std::string(100, 'x')) +
      tar_member("b.png", std::string(100, 'x')) + tar_end());
  const std::string text = read({.held_bytes_max = 150});
  EXPECT_NE(text.find("'a.txt'"), std::string::npos) << text;
  EXPECT_EQ(read({.held_bytes_max = 200}).find("error"), std::string::npos);
}

TEST_F(SampleStreamTest, AShardThatChangedSinceItsScanIsCorrupt) {
  put(kInterleaved);
  auto scanned = scan_shard(store_, "s.tar", {.group_by_key = true});
  ASSERT_TRUE(scanned);
  put(tar_end());
  auto stream = SampleStream::open(store_, *std::move(scanned));
  ASSERT_FALSE(stream);
  EXPECT_EQ(stream.error().code, Code::kCorrupt);
}

}  // namespace
}  // namespace yard::shards
