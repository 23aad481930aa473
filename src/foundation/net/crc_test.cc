#include "net/crc.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/crc32c.h"
#include "net/encoding.h"

namespace yard {
namespace {

// One bit at a time, from the definition.
template <typename Word>
Word crc_by_bits(std::string_view bytes, Word polynomial) {
  Word state = static_cast<Word>(~Word{0});
  for (const char byte : bytes) {
    state ^= static_cast<uint8_t>(byte);
    for (int bit = 0; bit < 8; ++bit) state = (state >> 1) ^ ((state & 1) ? polynomial : 0);
  }
  return static_cast<Word>(~state);
}

std::string noise(size_t size_bytes) {
  std::string bytes(size_bytes, '\0');
  uint64_t state = 88172645463325252;  // xorshift64
  for (char& byte : bytes) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    byte = static_cast<char>(state);
  }
  return bytes;
}

TEST(Crc32, CheckValueOfItsDefinition) {
  EXPECT_EQ(crc32(bytes_of("123456789")), 0xCBF43926u);
  EXPECT_EQ(crc32({}), 0u);
}

TEST(Crc64Nvme, CheckValuesOfItsSpecification) {
  EXPECT_EQ(crc64_nvme(bytes_of("123456789")), 0xAE8B14860A799888u);
  // NVM Express NVM command set specification, "64b CRC test cases": 4 KiB blocks.
  EXPECT_EQ(crc64_nvme(bytes_of(std::string(4096, '\0'))), 0x6482D367EB22B64Eu);
  EXPECT_EQ(crc64_nvme(bytes_of(std::string(4096, '\xFF'))), 0xC0DDBA7302ECA3ACu);
}

TEST(Crc, EverySizeAndAlignmentGivesTheValueOfTheDefinition) {
  const std::string bytes = noise(1200);
  for (size_t offset : {0, 1, 7, 16})
    for (size_t size = 0; size + offset <= bytes.size(); size += size < 300 ? 1 : 37) {
      const std::string_view piece = std::string_view(bytes).substr(offset, size);
      ASSERT_EQ(crc32(bytes_of(piece)), crc_by_bits<uint32_t>(piece, 0xEDB88320)) << size;
      ASSERT_EQ(crc64_nvme(bytes_of(piece)), crc_by_bits<uint64_t>(piece, 0x9A6C9329AC4BC9B5))
          << size;
    }
}

TEST(Crc, GoesOnFromAnEarlierValue) {
  const std::string bytes = noise(5000);
  for (size_t cut : {0, 1, 15, 128, 300, 4096, 5000}) {
    const auto first = bytes_of(bytes).first(cut), second = bytes_of(bytes).subspan(cut);
    EXPECT_EQ(crc32(second, crc32(first)), crc32(bytes_of(bytes)));
    EXPECT_EQ(crc64_nvme(second, crc64_nvme(first)), crc64_nvme(bytes_of(bytes)));
  }
}

TEST(CrcCombine, EqualsTheValueOfTheWhole) {
  const std::string bytes = noise(5000);
  for (size_t cut : {0, 1, 15, 128, 300, 4096, 5000}) {
    const auto whole = bytes_of(bytes);
    const auto a = whole.first(cut), b = whole.subspan(cut);
    EXPECT_EQ(crc32_combine(crc32(a), crc32(b), b.size()), crc32(whole));
    EXPECT_EQ(crc32c_combine(crc32c(a), crc32c(b), b.size()), crc32c(whole));
    EXPECT_EQ(crc64_nvme_combine(crc64_nvme(a), crc64_nvme(b), b.size()), crc64_nvme(whole));
  }
}

TEST(CrcCombine, PartsOfTerabytes) {
  // No such bytes exist here; joining in either order must agree.
  const uint64_t big = uint64_t{5} << 40;
  EXPECT_EQ(crc64_nvme_combine(crc64_nvme_combine(1, 2, big), 3, big + 7),
            crc64_nvme_combine(1, crc64_nvme_combine(2, 3, big + 7), big + big + 7));
  EXPECT_EQ(crc32_combine(crc32_combine(1, 2, big), 3, big + 7),
            crc32_combine(1, crc32_combine(2, 3, big + 7), big + big + 7));
  // The polynomial of CRC-32 is primitive: 2^32 - 1 zeros leave a check as it was.
  const uint64_t period = (uint64_t{1} << 32) - 1;
  EXPECT_EQ(crc32_combine(1, 2, 7 + 1024 * period), crc32_combine(1, 2, 7));
  EXPECT_NE(crc32_combine(1, 2, 8 + 1024 * period), crc32_combine(1, 2, 7));
}

}  // namespace
}  // namespace yard
