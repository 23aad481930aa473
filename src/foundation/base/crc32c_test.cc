#include "base/crc32c.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/random.h"

namespace yard {
namespace {

uint32_t checksum(std::string_view text, uint32_t previous = 0) {
  return crc32c(std::as_bytes(std::span(text)), previous);
}

// The definition, one bit at a time.
uint32_t by_definition(std::string_view text) {
  uint32_t state = ~0u;
  for (const char c : text) {
    state ^= static_cast<uint8_t>(c);
    for (int bit = 0; bit < 8; ++bit) state = (state >> 1) ^ (state & 1 ? 0x82F63B78u : 0);
  }
  return ~state;
}

std::string random_bytes(size_t size) {
  std::string bytes(size, '\0');
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(random_u64(1, 2, i));
  return bytes;
}

TEST(Crc32c, MatchesTheVectorsOfRfc3720) {
  std::string ascending(32, '\0');
  for (size_t i = 0; i < 32; ++i) ascending[i] = static_cast<char>(i);
  EXPECT_EQ(checksum(std::string(32, '\0')), 0x8A9136AAu);
  EXPECT_EQ(checksum(std::string(32, '\xFF')), 0x62A8AB43u);
  EXPECT_EQ(checksum(ascending), 0x46DD794Eu);
  EXPECT_EQ(checksum("123456789"), 0xE3069283u);
  EXPECT_EQ(checksum(""), 0u);
}

// Sizes around the borders of every loop: words, three runs of 1024, several of those; folding
// begins at 512 and goes on by 256, 64 and what is left.
TEST(Crc32c, MatchesTheDefinitionAtEverySizeAndAlignment) {
  const std::string bytes = random_bytes(10'000);
  for (const size_t size : {1,   7,    8,    9,    63,   511,  512,  513,  575,  576, 767,
                            768, 1023, 1100, 3071, 3072, 3073, 3080, 6143, 6144, 9990})
    for (size_t offset = 0; offset < 8; ++offset) {
      const auto text = std::string_view(bytes).substr(offset, size);
      EXPECT_EQ(checksum(text), by_definition(text)) << size << " at " << offset;
    }
}

TEST(Crc32c, ContinuesWhereAnEarlierCallEnded) {
  const std::string bytes = random_bytes(9'000);
  const auto text = std::string_view(bytes);
  for (const size_t cut : {0, 1, 8, 600, 3072, 5000, 8800, 9000})
    EXPECT_EQ(checksum(text.substr(cut), checksum(text.substr(0, cut))), checksum(text)) << cut;
}

TEST(Crc32c, SeesEveryFlippedBit) {
  std::string bytes = random_bytes(4'000);
  const uint32_t before = checksum(bytes);
  for (const size_t i : {0, 1023, 1024, 2048, 3071, 3072, 3999}) {
    bytes[i] ^= 0x10;
    EXPECT_NE(checksum(bytes), before) << i;
    bytes[i] ^= 0x10;
  }
}

}  // namespace
}  // namespace yard
