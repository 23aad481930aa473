// Every vector width that this CPU has, against OpenSSL.
#include "net/md5_blocks_internal.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/random.h"
#include "base/testing/vector_targets.h"
#include "net/md5_group.h"
#include "net/testing/plain_md5.h"

namespace yard::net_internal {
namespace {

// Blocks of different number in each lane, so that lanes end one after the other.
TEST(Md5Blocks, AnyNumberOfLanesOfAnyLengthEqualsEachByItself) {
  for_each_vector_target([] {
    for (size_t lane_count = 1; lane_count <= kMd5LanesMax; ++lane_count) {
      std::vector<std::vector<std::byte>> data;
      std::vector<Md5State> states(lane_count, kMd5StateFirst), alone(lane_count, kMd5StateFirst);
      std::vector<Md5Lane> lanes;
      for (size_t i = 0; i < lane_count; ++i) {
        const size_t block_count = 1 + random_u64(lane_count, 1, i) % 9;
        data.push_back(noise(block_count * kMd5BlockBytes, 100 * lane_count + i));
        lanes.push_back({&states[i], data[i].data(), block_count});
        Md5Lane single{&alone[i], data[i].data(), block_count};
        md5_blocks({&single, 1});
      }
      md5_blocks(lanes);
      EXPECT_EQ(states, alone) << lane_count;
    }
  });
}

TEST(Md5Blocks, EveryTargetHasLanesAndFewerThanTheMost) {
  for_each_vector_target([] {
    EXPECT_GE(md5_lane_count(), 1U);
    EXPECT_LE(md5_lane_count(), kMd5LanesMax);
  });
}

// Around the ends of blocks and of the padding; the pieces' borders lie anywhere.
TEST(Md5Blocks, DigestsOfAllLengthsAreThoseOfOpenSsl) {
  const auto bytes = noise(300, 7);
  Md5Group group;
  for (size_t size = 0; size <= bytes.size(); ++size) {
    const auto content = std::span(bytes).first(size);
    Md5Group::Stream md5(group);
    size_t at = 0;
    for (uint64_t i = 0; at < size; ++i) {
      const size_t piece = std::min<size_t>(random_u64(size, 2, i) % 130, size - at);
      md5.update(content.subspan(at, piece));
      at += piece;
    }
    EXPECT_EQ(md5.digest(), openssl_md5(content)) << size;
  }
}

// RFC 1321, appendix A.5.
TEST(Md5Blocks, TheFactsOfTheRfcHold) {
  const std::pair<std::string_view, std::string_view> facts[] = {
      {"", "d41d8cd98f00b204e9800998ecf8427e"},
      {"abc", "900150983cd24fb0d6963f7d28e17f72"},
      {"12345678901234567890123456789012345678901234567890123456789012345678901234567890",
       "57edf4a22be3c955ac49da2e2107b67a"}};
  Md5Group group;
  for (const auto& [text, digest] : facts) {
    Md5Group::Stream md5(group);
    md5.update(std::as_bytes(std::span(text)));
    std::string hex;
    for (const char byte : md5.digest()) {
      constexpr std::string_view kDigits = "0123456789abcdef";
      hex += kDigits[uint8_t(byte) >> 4];
      hex += kDigits[uint8_t(byte) & 15];
    }
    EXPECT_EQ(hex, digest);
  }
}

}  // namespace
}  // namespace yard::net_internal
