#include "prep/phash.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "base/file.h"
#include "base/random.h"
#include "prep/near_duplicates.h"

namespace yard::prep {
namespace {

images::Picture pattern(int width, int height) {
  images::Picture picture{width, height, {}};
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x)
      for (const int value : {x * 7 + y * 3, x * y / 5, (x * x + 11 * y) / 9})
        picture.pixels.push_back(uint8_t(value % 251));
  return picture;
}

// The expected values are str(imagehash.phash(image)) of imagehash 4.3.2 with Pillow 12 on the same
// pixels.
TEST(Phash, IsThatOfImagehash) {
  EXPECT_EQ(phash_text(phash(to_grey(pattern(300, 200)))), "8000053f1f1f3f7f");
  EXPECT_EQ(phash_text(phash(to_grey(pattern(32, 32)))), "906d4a544d76ab76");
  EXPECT_EQ(phash_text(phash(to_grey(pattern(97, 411)))), "80011f033f3b7f3b");
  EXPECT_EQ(phash_text(phash(to_grey(pattern(20, 9)))), "aa57577b88559498");
  EXPECT_EQ(phash_text(phash(to_grey(pattern(1, 1)))), "0000000000000000");
  EXPECT_EQ(phash_text(phash(to_grey(pattern(640, 33)))), "80000f1f3f3f7c7c");
}

TEST(Phash, ResizesAsPillowDoes) {
  const GreyPicture small = resize_lanczos(to_grey(pattern(97, 411)), 32, 32);
  const std::vector<uint8_t> first(small.levels.begin(), small.levels.begin() + 8);
  EXPECT_EQ(first, (std::vector<uint8_t>{9, 17, 26, 35, 45, 55, 64, 73}));
}

TEST(Phash, IsReadBackFromItsText) {
  EXPECT_EQ(*parse_phash(phash_text(0x00ff00000000000aULL)), 0x00ff00000000000aULL);
  for (const char* bad : {"", "123", "00112233445566778", "001122334455667g", "0x11223344556677"})
    EXPECT_EQ(parse_phash(bad).error().code, Code::kInvalidArgument) << bad;
}

std::vector<uint64_t> many_hashes(int count) {
  std::vector<uint64_t> hashes;
  for (int i = 0; i < count; ++i) {
    // In families of four, a few bits apart.
    uint64_t hash = random_u64(7, 0, uint64_t(i / 4));
    for (int flip = 0; flip < 3 * (i % 4); ++flip)
      hash ^= uint64_t{1} << random_below(64, 7, uint64_t(i) + 1, uint64_t(flip));
    hashes.push_back(hash);
  }
  return hashes;
}

TEST(NearDuplicates, FindsWhatComparingWithAllFinds) {
  const std::vector<uint64_t> hashes = many_hashes(4000);
  NearDuplicates index;
  for (size_t i = 0; i < hashes.size(); ++i) index.add(hashes[i], 1000 + i);
  int found_count = 0;
  for (const int distance : {0, 1, 3, 4, 7, 8, 12, 15})
    for (size_t query = 0; query < hashes.size(); query += 997) {
      std::vector<NearDuplicates::Match> expected;
      for (size_t i = 0; i < hashes.size(); ++i)
        if (phash_distance(hashes[i], hashes[query]) <= distance)
          expected.push_back({1000 + i, hashes[i], phash_distance(hashes[i], hashes[query])});
      std::ranges::stable_sort(expected, {}, &NearDuplicates::Match::distance);
      EXPECT_EQ(index.find(hashes[query], distance), expected);
      EXPECT_EQ(index.nearest(hashes[query], distance)->distance, 0);
      found_count += int(expected.size());
    }
  EXPECT_GT(found_count, 60);  // more than the queries themselves
  EXPECT_FALSE(NearDuplicates().nearest(5, 15).has_value());
}

TEST(NearDuplicates, ComesBackFromItsFile) {
  const std::string path = testing::TempDir() + "/hashes-" + std::to_string(getpid());
  NearDuplicates index;
  for (const uint64_t hash : many_hashes(100)) index.add(hash, hash % 17);
  ASSERT_TRUE(index.save(path));
  const auto loaded = NearDuplicates::load(path);
  ASSERT_TRUE(loaded);
  for (const uint64_t hash : many_hashes(100))
    EXPECT_EQ(loaded->find(hash, 9), index.find(hash, 9));
  std::filesystem::remove(path);
}

TEST(NearDuplicates, DamageOfItsFileIsCorrupt) {
  const std::string path = testing::TempDir() + "/bad-hashes-" + std::to_string(getpid());
  EXPECT_EQ(NearDuplicates::load(path).error().code, Code::kNotFound);
  NearDuplicates index;
  for (const uint64_t hash : many_hashes(3)) index.add(hash, 1);
  ASSERT_TRUE(index.save(path));
  const std::string whole = *read_file(path);
  for (size_t size = 0; size < whole.size(); ++size) {
    ASSERT_TRUE(write_file_atomic(path, whole.substr(0, size)));
    EXPECT_EQ(NearDuplicates::load(path).error().code, Code::kCorrupt) << size;
  }
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = char(damaged[at] ^ 4);
    ASSERT_TRUE(write_file_atomic(path, damaged));
    EXPECT_EQ(NearDuplicates::load(path).error().code, Code::kCorrupt) << at;
  }
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace yard::prep
