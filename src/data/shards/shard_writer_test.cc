#include "shards/shard_writer.h"

#include <gtest/gtest.h>

#include "shards/shard_reader.h"
#include "storage/memory_store.h"
#include "storage/testing/faulty_store.h"

namespace yard::shards {
namespace {

using storage::testing::Call;
using storage::testing::FaultyStore;
using storage::testing::Method;

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

std::string number(int i) {
  return std::to_string(10000 + i);
}

Status add(ShardWriter& writer, std::string_view key, std::string_view picture,
           std::string_view caption) {
  const NewMember members[] = {{"png", bytes_of(picture)}, {"txt", bytes_of(caption)}};
  return writer.add(key, members);
}

ShardWriter open_writer(storage::ObjectStore& store, ShardWriterOptions options) {
  auto writer = ShardWriter::create(store, options);
  YARD_CHECK(writer);
  return *std::move(writer);
}

// Samples of 2 x (512 + 512) bytes.
std::vector<ShardSummary> write_samples(storage::ObjectStore& store, int count,
                                        uint64_t size_bytes_max) {
  ShardWriter writer = open_writer(store, {.prefix = "d/x", .size_bytes_max = size_bytes_max});
  for (int i = 0; i < count; ++i)
    EXPECT_TRUE(add(writer, number(i), "picture " + number(i), "caption " + number(i)));
  auto shards = writer.finish();
  EXPECT_TRUE(shards);
  return shards ? *shards : std::vector<ShardSummary>();
}

TEST(ShardWriterTest, ShardsKeepTheirSizeAndHoldEverySampleInOrder) {
  storage::MemoryStore store;
  // Three samples and the end mark take 3 * 2048 + 1024 bytes.
  const auto shards = write_samples(store, 10, 7168);
  ASSERT_EQ(shards.size(), 4U);
  int next = 0;
  for (const ShardSummary& shard : shards) {
    EXPECT_EQ(shard.key, "d/x-00000" + std::to_string(&shard - shards.data()) + ".tar");
    EXPECT_LE(shard.size_bytes, 7168U);
    auto reader = ShardReader::open(store, shard.key);
    ASSERT_TRUE(reader) << reader.error().message;
    EXPECT_EQ(reader->index_source(), IndexSource::kSidecar);
    EXPECT_EQ(reader->index().sample_count(), shard.sample_count);
    EXPECT_EQ(reader->shard().size_bytes, shard.size_bytes);
    for (uint64_t i = 0; i < shard.sample_count; ++i, ++next) {
      EXPECT_EQ(reader->index().key(i), number(next));
      std::vector<std::byte> buffer;
      auto contents = reader->read(i, reader->index().members(i), buffer);
      ASSERT_TRUE(contents);
      EXPECT_EQ(
          std::string(reinterpret_cast<const char*>((*contents)[1].data()), (*contents)[1].size()),
          "caption " + number(next));
    }
  }
  EXPECT_EQ(next, 10);
}

TEST(ShardWriterTest, TheIndexMadeOnTheWayEqualsTheOneOfAScan) {
  storage::MemoryStore store;
  ShardWriter writer = open_writer(store, {});
  ASSERT_TRUE(add(writer, "a/ü", "1", std::string(700, 'c')));
  ASSERT_TRUE(add(writer, std::string(200, 'k'), "", "x"));
  ASSERT_TRUE(writer.finish());
  auto scanned = scan_shard(store, "shard-000000.tar");
  ASSERT_TRUE(scanned) << scanned.error().message;
  EXPECT_EQ(*storage::get_all(store, "shard-000000.tar.idx"), scanned->index.encode());
}

TEST(ShardWriterTest, TheSameSamplesGiveTheSameBytes) {
  storage::MemoryStore first, second;
  write_samples(first, 5, 7168);
  write_samples(second, 5, 7168);
  EXPECT_EQ(*storage::get_all(first, "d/x-000000.tar"),
            *storage::get_all(second, "d/x-000000.tar"));
}

TEST(ShardWriterTest, ASampleOverTheSizeHasAShardOfItsOwn) {
  storage::MemoryStore store;
  ShardWriter writer = open_writer(store, {.size_bytes_max = 5000});
  for (const size_t size : {10U, 20'000U, 10U})
    ASSERT_TRUE(
        add(writer, number(int(size)) + "k" + std::to_string(size), std::string(size, 'x'), ""));
  auto shards = writer.finish();
  ASSERT_TRUE(shards);
  EXPECT_EQ(shards->size(), 3U);
}

TEST(ShardWriterTest, NamesThatWouldBeReadBackAsOthersAreRefused) {
  storage::MemoryStore store;
  for (const char* key : {"", "a.b", "/a", "a/", "../a", "a/../b", "__m__/a", "a\nb", "\xff"}) {
    ShardWriter writer = open_writer(store, {});
    auto added = add(writer, key, "1", "2");
    ASSERT_FALSE(added) << key;
    EXPECT_EQ(added.error().code, Code::kInvalidArgument) << key;
  }
  ShardWriter writer = open_writer(store, {});
  EXPECT_FALSE(writer.add("a", {}));
  EXPECT_FALSE(ShardWriter::create(store, {.prefix = "../x"}));
  EXPECT_FALSE(ShardWriter::create(store, {.size_bytes_max = 0}));
  EXPECT_TRUE(storage::list_all(store, "")->empty());
}

TEST(ShardWriterTest, AKeyUsedTwiceIsRefusedByName) {
  storage::MemoryStore store;
  ShardWriter writer = open_writer(store, {});
  ASSERT_TRUE(add(writer, "a", "1", "2"));
  ASSERT_TRUE(add(writer, "b", "1", "2"));
  auto twice = add(writer, "a", "1", "2");
  ASSERT_FALSE(twice);
  EXPECT_EQ(twice.error().code, Code::kInvalidArgument);
  EXPECT_NE(twice.error().message.find("'a.png'"), std::string::npos) << twice.error().message;
  EXPECT_FALSE(writer.finish()) << "after an Error it refuses everything";
}

// Whatever call fails as on a full disk, what is visible is whole: shards with all their samples.
TEST(ShardWriterTest, AFullStoreLeavesOnlyWholeShards) {
  uint64_t call_count = 0;
  {
    storage::MemoryStore inner;
    FaultyStore store(inner, [](const Call&) -> Status { return Ok{}; });
    write_samples(store, 10, 7168);
    call_count = store.call_count();
  }
  ASSERT_GT(call_count, 12U);
  for (uint64_t failing = 0; failing < call_count; ++failing) {
    storage::MemoryStore inner;
    FaultyStore store(inner, [&](const Call& call) -> Status {
      if (call.number == failing) return Error{Code::kExhausted, "no space left"};
      return Ok{};
    });
    Status status = Ok{};
    {
      ShardWriter writer = open_writer(store, {.prefix = "x", .size_bytes_max = 7168});
      for (int i = 0; i < 10 && status; ++i) status = add(writer, number(i), "p", "c");
      if (status)
        if (auto shards = writer.finish(); !shards) status = shards.error();
    }
    ASSERT_FALSE(status) << failing;
    EXPECT_EQ(status.error().code, Code::kExhausted);
    const auto objects = storage::list_all(inner, "");
    ASSERT_TRUE(objects);
    for (const auto& object : *objects) {
      if (is_index_key(object.key)) continue;
      auto scanned = scan_shard(inner, object.key);
      ASSERT_TRUE(scanned) << scanned.error().message;
      EXPECT_EQ(scanned->index.sample_count(), object.key == "x-000003.tar" ? 1U : 3U);
    }
  }
}

TEST(ShardWriterTest, AWriterThatIsDroppedLeavesNoShard) {
  storage::MemoryStore store;
  {
    ShardWriter writer = open_writer(store, {});
    ASSERT_TRUE(add(writer, "a", "1", "2"));
  }
  EXPECT_TRUE(storage::list_all(store, "")->empty());
}

}  // namespace
}  // namespace yard::shards
