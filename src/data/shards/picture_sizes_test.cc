// Sizes of pictures in indexes: whoever makes the index finds the same ones, and an index without
// them is as good as before.
#include <gtest/gtest.h>

#include "base/crc32c.h"
#include "base/random.h"
#include "images/picture.h"
#include "shards/pack.h"
#include "shards/shard_index.h"
#include "shards/testing/tar_bytes.h"
#include "storage/memory_store.h"

namespace yard::shards {
namespace {

using testing::tar_end;
using testing::tar_member;

images::Picture picture_of(int width, int height) {
  images::Picture picture{width, height, std::vector<uint8_t>(size_t(width * height) * 3)};
  for (size_t i = 0; i < picture.pixels.size(); ++i)
    picture.pixels[i] = uint8_t(random_u64(1, 2, i));  // of no use to a compressor
  return picture;
}

std::string text_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string png(int width, int height) {
  return text_of(*images::encode_png(picture_of(width, height)));
}

std::string jpeg(int width, int height) {
  return text_of(*images::encode_jpeg(picture_of(width, height), 90));
}

// "a.jpg 30x20" of each member that has a size.
std::string sizes_of(const ShardIndex& index) {
  std::string text;
  for (uint64_t i = 0; i < index.sample_count(); ++i)
    for (const auto& member : index.members(i))
      if (const auto size = index.picture_size(i, member))
        text += index.member_name(i, member) + " " + std::to_string(size->width) + "x" +
                std::to_string(size->height) + "; ";
  return text;
}

class PictureSizesTest : public ::testing::Test {
 protected:
  void put(std::string_view key, std::string_view content) {
    ASSERT_TRUE(storage::put_text(store_, key, content));
  }
  ShardIndex scanned() {
    put("s.tar", tar_member("a.JPG", jpeg(30, 20)) + tar_member("a.txt", "caption") +
                     tar_member("b.jpg", "no picture") + tar_member("b.seg.png", png(7, 9)) +
                     tar_end());
    auto shard = scan_shard(store_, "s.tar");
    EXPECT_TRUE(shard) << shard.error().message;
    return std::move(shard->index);
  }
  ShardIndex without_sizes(const ShardIndex& index) {
    ShardIndexBuilder builder;
    for (uint64_t i = 0; i < index.sample_count(); ++i)
      for (const auto& member : index.members(i))
        EXPECT_TRUE(builder.add(index.member_name(i, member), member.offset, member.size_bytes,
                                member.crc32c));
    return builder.finish(*store_.head("s.tar"));
  }

  storage::MemoryStore store_;
};

TEST_F(PictureSizesTest, AreFoundByAScanAndKeptByTheIndex) {
  const ShardIndex index = scanned();
  EXPECT_EQ(sizes_of(index), "a.JPG 30x20; b.seg.png 7x9; ");
  const auto decoded = ShardIndex::decode(index.encode(), "s.tar.idx");
  ASSERT_TRUE(decoded) << decoded.error().message;
  EXPECT_EQ(sizes_of(*decoded), sizes_of(index));
  EXPECT_EQ(decoded->encode(), index.encode());
  EXPECT_TRUE(decoded->same_content(index));
}

TEST_F(PictureSizesTest, AnIndexWithoutThemIsOfTheFirstVersionAndStillGood) {
  const ShardIndex index = scanned();
  const ShardIndex old = without_sizes(index);
  EXPECT_EQ(old.encode()[8], '\1');
  EXPECT_EQ(index.encode()[8], '\2');
  const auto decoded = ShardIndex::decode(old.encode(), "s.tar.idx");
  ASSERT_TRUE(decoded) << decoded.error().message;
  EXPECT_EQ(sizes_of(*decoded), "");
  EXPECT_TRUE(decoded->same_content(index));
  EXPECT_TRUE(index.same_content(*decoded));
}

TEST_F(PictureSizesTest, AWrongOneIsNotTheSameContent) {
  const ShardIndex index = scanned();
  std::string bytes = index.encode();
  const size_t at = bytes.find(std::string("\x1e\0\0\0\x14\0\0\0", 8));
  ASSERT_NE(at, std::string::npos);
  bytes[at] = '\x1f';
  const uint32_t crc = crc32c(std::as_bytes(std::span(bytes)).subspan(16));
  for (int i = 0; i < 4; ++i) bytes[size_t(12 + i)] = char(crc >> (8 * i));
  const auto decoded = ShardIndex::decode(bytes, "s.tar.idx");
  ASSERT_TRUE(decoded);
  EXPECT_EQ(sizes_of(*decoded), "a.JPG 31x20; b.seg.png 7x9; ");
  EXPECT_FALSE(decoded->same_content(index));
}

TEST_F(PictureSizesTest, EveryCutIsCorruptAndNoNumberLeadsAstray) {
  const std::string good = scanned().encode();
  const auto with_checksum = [](std::string bytes) {
    const uint32_t crc = crc32c(std::as_bytes(std::span(bytes)).subspan(16));
    for (int i = 0; i < 4; ++i) bytes[size_t(12 + i)] = char(crc >> (8 * i));
    return bytes;
  };
  for (size_t at = 16; at < good.size(); ++at) {
    const auto cut = ShardIndex::decode(with_checksum(good.substr(0, at)), "s.tar.idx");
    ASSERT_FALSE(cut) << at;
    EXPECT_EQ(cut.error().code, Code::kCorrupt);
    for (const uint32_t value : {0U, 1U, 0x80000000U, 0xffffffffU}) {
      std::string bad = good;
      for (size_t i = 0; i < 4 && at + i < bad.size(); ++i) bad[at + i] = char(value >> (8 * i));
      const auto decoded = ShardIndex::decode(with_checksum(bad), "s.tar.idx");
      if (!decoded) continue;
      for (uint64_t i = 0; i < decoded->sample_count(); ++i)
        for (const auto& member : decoded->members(i))
          if (const auto size = decoded->picture_size(i, member)) {
            EXPECT_GT(std::min(size->width, size->height), 0) << at;
          }
    }
  }
}

// One picture of several blocks, whose orientation could stand behind its pixels, among small ones.
TEST_F(PictureSizesTest, ArePackedAlikeWhateverTheSizeOfTheFile) {
  put("in/a.png", png(3, 5));
  put("in/b.png", png(1100, 700));
  put("in/c.jpg", jpeg(64, 48));
  for (const char* key : {"in/a.txt", "in/b.txt", "in/c.txt"}) put(key, "caption");
  ASSERT_GT(store_.head("in/b.png")->size_bytes, uint64_t{2} << 20);
  storage::MemoryStore target;
  const PackTree tree{std::shared_ptr<storage::ObjectStore>(std::shared_ptr<void>(), &store_),
                      "in/"};
  const auto report = pack(tree, target, {}, {}, {});
  ASSERT_TRUE(report) << report.error().message;
  const auto packed =
      ShardIndex::decode(*storage::get_all(target, "shard-000000.tar.idx"), "packed");
  ASSERT_TRUE(packed) << packed.error().message;
  EXPECT_EQ(sizes_of(*packed), "a.png 3x5; b.png 1100x700; c.jpg 64x48; ");
  EXPECT_EQ(sizes_of(scan_shard(target, "shard-000000.tar")->index), sizes_of(*packed));
}

}  // namespace
}  // namespace yard::shards
