#include "net/checksums.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "net/encoding.h"

namespace yard {
namespace {

constexpr ChecksumAlgorithm kAll[] = {ChecksumAlgorithm::kCrc32,     ChecksumAlgorithm::kCrc32c,
                                      ChecksumAlgorithm::kCrc64Nvme, ChecksumAlgorithm::kSha1,
                                      ChecksumAlgorithm::kSha256,    ChecksumAlgorithm::kSha512,
                                      ChecksumAlgorithm::kMd5};

std::string hex_of(ChecksumAlgorithm algorithm, std::string_view text) {
  Checksum checksum(algorithm);
  checksum.update(bytes_of(text));
  return checksum.hex();
}

TEST(Checksum, KnownAnswers) {
  // The CRCs' check values; FIPS 180 and RFC 1321 for the digests of "abc".
  EXPECT_EQ(hex_of(ChecksumAlgorithm::kCrc32, "123456789"), "cbf43926");
  EXPECT_EQ(hex_of(ChecksumAlgorithm::kCrc32c, "123456789"), "e3069283");
  EXPECT_EQ(hex_of(ChecksumAlgorithm::kCrc64Nvme, "123456789"), "ae8b14860a799888");
  EXPECT_EQ(hex_of(ChecksumAlgorithm::kSha1, "abc"), "a9993e364706816aba3e25717850c26c9cd0d89d");
  EXPECT_EQ(hex_of(ChecksumAlgorithm::kSha256, "abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hex_of(ChecksumAlgorithm::kSha512, "abc"),
            "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a"
            "2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f");
  EXPECT_EQ(hex_of(ChecksumAlgorithm::kMd5, "abc"), "900150983cd24fb0d6963f7d28e17f72");
}

TEST(Checksum, Base64IsWhatS3WouldSend) {
  // The checksum of the chunked upload in AWS's documentation: 65 KiB of 'a'.
  EXPECT_EQ(checksum_base64(ChecksumAlgorithm::kCrc32c, bytes_of(std::string(65 * 1024, 'a'))),
            "sOO8/Q==");
  EXPECT_EQ(checksum_base64(ChecksumAlgorithm::kCrc32, {}), "AAAAAA==");
  EXPECT_EQ(checksum_base64(ChecksumAlgorithm::kMd5, {}), "1B2M2Y8AsgTpgAmY7PhCfg==");
}

TEST(Checksum, PiecesGiveTheSameAsTheWhole) {
  std::string text;
  for (int i = 0; i < 3000; ++i) text += static_cast<char>(i * 7);
  for (const auto algorithm : kAll) {
    Checksum checksum(algorithm);
    for (size_t at = 0, size = 0; at < text.size(); at += size++)
      checksum.update(bytes_of(std::string_view(text).substr(at, size)));
    EXPECT_EQ(checksum.hex(), hex_of(algorithm, text)) << to_string(algorithm);
  }
}

TEST(Checksum, MayBeReadOnTheWay) {
  for (const auto algorithm : kAll) {
    Checksum checksum(algorithm);
    checksum.update(bytes_of("one"));
    EXPECT_EQ(checksum.hex(), hex_of(algorithm, "one"));
    checksum.update(bytes_of("two"));
    EXPECT_EQ(checksum.hex(), hex_of(algorithm, "onetwo"));
    EXPECT_EQ(checksum.digest().size(), checksum_size_bytes(algorithm));
  }
}

TEST(ChecksumNames, BothWays) {
  for (const auto algorithm : kAll) {
    EXPECT_EQ(parse_checksum_algorithm(to_string(algorithm)), algorithm);
    EXPECT_EQ(checksum_of_header(checksum_header(algorithm)), algorithm);
  }
  EXPECT_EQ(parse_checksum_algorithm("crc64nvme"), ChecksumAlgorithm::kCrc64Nvme);
  EXPECT_EQ(checksum_of_header("X-Amz-Checksum-SHA256"), ChecksumAlgorithm::kSha256);
  for (const std::string_view name : {"", "CRC", "CRC32 ", "CRC-32", "SHA-256", "XXHASH64"})
    EXPECT_FALSE(parse_checksum_algorithm(name)) << name;
  EXPECT_FALSE(checksum_of_header("x-amz-checksum-type"));
}

TEST(CombineCrcDigests, JoinsParts) {
  for (const auto algorithm :
       {ChecksumAlgorithm::kCrc32, ChecksumAlgorithm::kCrc32c, ChecksumAlgorithm::kCrc64Nvme}) {
    const std::string a(777, 'x'), b(1234, 'y');
    EXPECT_EQ(combine_crc_digests(algorithm, *hex_decode(hex_of(algorithm, a)),
                                  *hex_decode(hex_of(algorithm, b)), b.size()),
              *hex_decode(hex_of(algorithm, a + b)));
  }
}

}  // namespace
}  // namespace yard
