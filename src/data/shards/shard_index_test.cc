#include "shards/shard_index.h"

#include <gtest/gtest.h>

#include "base/crc32c.h"
#include "shards/sample_name.h"
#include "shards/shard_reader.h"
#include "shards/testing/tar_bytes.h"
#include "storage/memory_store.h"
#include "storage/testing/faulty_store.h"

namespace yard::shards {
namespace {

using testing::tar_end;
using testing::tar_member;

std::string two_samples() {
  return tar_member("a.png", "picture") + tar_member("a.TXT", "caption") +
         tar_member("README", "none's") + tar_member("d/b.seg.png", "segments") + tar_end();
}

class ShardIndexTest : public ::testing::Test {
 protected:
  void put(std::string_view key, std::string_view content) {
    ASSERT_TRUE(storage::put_text(store_, key, content));
  }
  void put_index() {
    auto scanned = scan_shard(store_, "s.tar");
    ASSERT_TRUE(scanned) << scanned.error().message;
    put("s.tar.idx", scanned->index.encode());
  }
  std::string index() { return *storage::get_all(store_, "s.tar.idx"); }
  std::string read(const ShardReader& reader, uint64_t sample) {
    std::vector<std::byte> buffer;
    auto contents = reader.read(sample, reader.index().members(sample), buffer);
    if (!contents) return "error: " + contents.error().message;
    std::string text;
    for (const auto& content : *contents)
      text += std::string(reinterpret_cast<const char*>(content.data()), content.size()) + "|";
    return text;
  }

  storage::MemoryStore store_;
};

TEST_F(ShardIndexTest, SamplesAreGroupedAndFoundByLowerCaseExtension) {
  put("s.tar", two_samples());
  auto scanned = scan_shard(store_, "s.tar");
  ASSERT_TRUE(scanned) << scanned.error().message;
  const ShardIndex& index = scanned->index;
  ASSERT_EQ(index.sample_count(), 2U);
  EXPECT_EQ(index.key(0), "a");
  EXPECT_EQ(index.key(1), "d/b");
  ASSERT_EQ(index.members(0).size(), 2U);
  ASSERT_NE(index.find(0, "txt"), nullptr);
  EXPECT_EQ(index.find(0, "txt")->offset, 1536U);
  EXPECT_EQ(index.find(0, "txt")->size_bytes, 7U);
  EXPECT_EQ(index.member_name(0, *index.find(0, "txt")), "a.TXT");
  EXPECT_NE(index.find(1, "seg.png"), nullptr);
  EXPECT_EQ(index.find(1, "png"), nullptr);
}

TEST_F(ShardIndexTest, ASampleIsReadWithOneRangedRead) {
  put("s.tar", two_samples());
  put_index();
  uint64_t reads = 0;
  storage::testing::FaultyStore counted(store_, [&](const storage::testing::Call& call) -> Status {
    reads += call.method == storage::testing::Method::kGetRange;
    return Ok{};
  });
  auto reader = ShardReader::open(counted, "s.tar");
  ASSERT_TRUE(reader) << reader.error().message;
  EXPECT_EQ(reader->index_source(), IndexSource::kSidecar);
  EXPECT_EQ(reads, 1U) << "the index alone";
  EXPECT_EQ(read(*reader, 0), "picture|caption|");
  EXPECT_EQ(read(*reader, 1), "segments|");
  EXPECT_EQ(reads, 3U);
}

TEST_F(ShardIndexTest, AFlippedBitInAMemberIsCorruptAndNamesIt) {
  std::string tar = two_samples();
  put("s.tar", tar);
  auto scanned = scan_shard(store_, "s.tar");
  ASSERT_TRUE(scanned);
  tar[tar.find("caption")] ^= 1;
  put("s.tar", tar);
  const ShardReader reader(store_, {scanned->index, *store_.head("s.tar"), IndexSource::kSidecar});
  const std::string got = read(reader, 0);
  for (const char* word : {"s.tar", "offset 512", "sample 'a'", "'a.TXT'", "checksum"})
    EXPECT_NE(got.find(word), std::string::npos) << got;
  EXPECT_EQ(read(reader, 1), "segments|");
}

TEST_F(ShardIndexTest, AnEncodedIndexDecodesToItself) {
  put("s.tar", two_samples());
  put_index();
  auto decoded = ShardIndex::decode(index(), "s.tar.idx");
  ASSERT_TRUE(decoded) << decoded.error().message;
  EXPECT_EQ(decoded->encode(), index());
  EXPECT_TRUE(decoded->same_content(scan_shard(store_, "s.tar")->index));
}

TEST_F(ShardIndexTest, TheSampleCountIsReadFromTheFirstBytes) {
  put("s.tar", two_samples());
  EXPECT_EQ(read_sample_count(store_, "s.tar").error().code, Code::kNotFound);
  put_index();
  EXPECT_EQ(*read_sample_count(store_, "s.tar"), 2U);
  put("s.tar.idx", std::string(100, 'x'));
  EXPECT_EQ(read_sample_count(store_, "s.tar").error().code, Code::kCorrupt);
  put("s.tar.idx", "YARDIDX\n");
  EXPECT_FALSE(read_sample_count(store_, "s.tar"));
}

TEST_F(ShardIndexTest, EveryDamagedByteAndEveryCutOfAnIndexIsCorrupt) {
  put("s.tar", two_samples());
  put_index();
  const std::string good = index();
  for (size_t at = 0; at < good.size(); ++at) {
    std::string bad = good;
    bad[at] ^= 0x20;
    for (const std::string& bytes : {bad, good.substr(0, at)}) {
      auto decoded = ShardIndex::decode(bytes, "s.tar.idx");
      ASSERT_FALSE(decoded) << at;
      EXPECT_EQ(decoded.error().code, Code::kCorrupt);
      EXPECT_NE(decoded.error().message.find("s.tar.idx"), std::string::npos);
    }
  }
  put("s.tar.idx", good + "x");
  EXPECT_EQ(ShardReader::open(store_, "s.tar").error().code, Code::kCorrupt);
  put("s.tar.idx", "v1.2 3\n");  // DALI's index, for one
  EXPECT_EQ(ShardReader::open(store_, "s.tar").error().code, Code::kCorrupt);
}

// A right checksum does not make wrong numbers right: every field is set to the extremes.
TEST_F(ShardIndexTest, AnIndexOfWrongNumbersNeverReadsOutOfBounds) {
  put("s.tar", two_samples());
  put_index();
  const std::string good = index();
  for (size_t at = 16; at + 4 <= good.size(); ++at) {
    for (const char* value : {"\xff\xff\xff\xff", "\0\0\0\0", "\0\0\0\x7f"}) {
      std::string bad = good;
      bad.replace(at, 4, value, 4);
      const uint32_t crc = crc32c(std::as_bytes(std::span(bad)).subspan(16));
      for (int i = 0; i < 4; ++i) bad[size_t(12 + i)] = char(crc >> (8 * i));
      auto decoded = ShardIndex::decode(bad, "s.tar.idx");
      if (!decoded) continue;
      for (uint64_t i = 0; i < decoded->sample_count(); ++i) {
        (void)decoded->key(i);
        for (const auto& member : decoded->members(i)) {
          (void)decoded->extension(member);
          EXPECT_LE(member.offset + member.size_bytes, decoded->shard_size_bytes());
        }
      }
    }
  }
}

TEST_F(ShardIndexTest, AShardWithoutIndexIsScannedAndNothingIsWritten) {
  put("s.tar", two_samples());
  auto reader = ShardReader::open(store_, "s.tar");
  ASSERT_TRUE(reader);
  EXPECT_EQ(reader->index_source(), IndexSource::kMissing);
  EXPECT_EQ(read(*reader, 0), "picture|caption|");
  EXPECT_EQ(storage::list_all(store_, "")->size(), 1U);
}

TEST_F(ShardIndexTest, AStaleIndexIsNoticed) {
  put("s.tar", two_samples());
  put_index();
  // Another size.
  put("s.tar", tar_member("z.png", "other") + two_samples());
  auto longer = ShardReader::open(store_, "s.tar");
  ASSERT_TRUE(longer);
  EXPECT_EQ(longer->index_source(), IndexSource::kStale);
  EXPECT_EQ(read(*longer, 0), "other|");
  // The same size, other content.
  std::string same_size = two_samples();
  same_size[same_size.find("picture")] = 'P';
  put("s.tar", same_size);
  auto changed = ShardReader::open(store_, "s.tar");
  ASSERT_TRUE(changed);
  EXPECT_EQ(changed->index_source(), IndexSource::kStale);
  EXPECT_EQ(read(*changed, 0), "Picture|caption|");
}

TEST_F(ShardIndexTest, ACopiedShardKeepsItsIndex) {
  put("s.tar", two_samples());
  put_index();
  put("s.tar", two_samples());  // a new etag
  auto reader = ShardReader::open(store_, "s.tar");
  ASSERT_TRUE(reader);
  EXPECT_EQ(reader->index_source(), IndexSource::kSidecar);
  EXPECT_EQ(read(*reader, 1), "segments|");
}

TEST_F(ShardIndexTest, AShardReplacedUnderAReaderIsCorrupt) {
  put("s.tar", two_samples());
  put_index();
  auto reader = ShardReader::open(store_, "s.tar");
  ASSERT_TRUE(reader);
  put("s.tar", two_samples());
  EXPECT_NE(read(*reader, 0).find("changed"), std::string::npos);
}

TEST_F(ShardIndexTest, MembersApartOrTwiceAreNamed) {
  put("s.tar",
      tar_member("a.png", "1") + tar_member("b.png", "2") + tar_member("a.txt", "3") + tar_end());
  auto apart = scan_shard(store_, "s.tar");
  ASSERT_FALSE(apart);
  EXPECT_EQ(apart.error().code, Code::kCorrupt);
  for (const char* word : {"s.tar", "'a.png'", "'a.txt'"})
    EXPECT_NE(apart.error().message.find(word), std::string::npos) << apart.error().message;
  put("s.tar", tar_member("a.png", "1") + tar_member("a.PNG", "2") + tar_end());
  auto twice = scan_shard(store_, "s.tar");
  ASSERT_FALSE(twice);
  EXPECT_EQ(twice.error().code, Code::kCorrupt);
  for (const char* word : {"s.tar", "'a.png'", "'a.PNG'"})
    EXPECT_NE(twice.error().message.find(word), std::string::npos) << twice.error().message;
}

TEST_F(ShardIndexTest, AShardOfNoSamplesIsEmpty) {
  put("s.tar", tar_end());
  put_index();
  auto reader = ShardReader::open(store_, "s.tar");
  ASSERT_TRUE(reader) << reader.error().message;
  EXPECT_EQ(reader->index().sample_count(), 0U);
}

TEST(SampleNameTest, SplitsAsWebDatasetDoes) {
  struct Row {
    const char* name;
    const char* key;  // nullptr: no sample's
    const char* extension;
  };
  // Checked beside the library itself in tests/conformance/test_shards.py.
  for (const Row& row : std::initializer_list<Row>{{"a.png", "a", "png"},
                                                   {"a.seg.PNG", "a", "seg.PNG"},
                                                   {"d.x/a.png", "d.x/a", "png"},
                                                   {"./a.png", "./a", "png"},
                                                   {"a.", "a", ""},
                                                   {"a..b", "a", ".b"},
                                                   {"README", nullptr, ""},
                                                   {"d.x/README", nullptr, ""},
                                                   {".hidden", nullptr, ""},
                                                   {"a/.hidden", "a/", "hidden"},
                                                   {"a/b/.hidden.txt", "a/b/", "hidden.txt"},
                                                   {"a.b/.hidden", nullptr, ""},
                                                   {"a.b/c/.hidden", "a.b/c/", "hidden"},
                                                   {"__meta__", nullptr, ""},
                                                   {"__x__/a.png", nullptr, ""},
                                                   {"__x__.png", "__x__", "png"},
                                                   {"a/__x__/b.png", "a/__x__/b", "png"}}) {
    const auto name = split_member_name(row.name);
    ASSERT_EQ(name.has_value(), row.key != nullptr) << row.name;
    if (!name) continue;
    EXPECT_EQ(name->key, row.key);
    EXPECT_EQ(name->extension, row.extension);
  }
}

}  // namespace
}  // namespace yard::shards
