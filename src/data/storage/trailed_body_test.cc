#include "storage/trailed_body.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/random.h"
#include "net/encoding.h"

namespace yard::storage {
namespace {

std::vector<std::byte> noise(size_t size) {
  std::vector<std::byte> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = std::byte(random_u64(size, 0, i));
  return bytes;
}

RangeReader reader_of(const std::vector<std::byte>& content) {
  return [&content](uint64_t offset, std::span<std::byte> into) -> Status {
    std::ranges::copy(std::span(content).subspan(offset, into.size()), into.begin());
    return Ok{};
  };
}

// All of it in pieces of `step`.
std::vector<std::byte> encoded(TrailedBody& body, size_t step) {
  std::vector<std::byte> bytes(body.encoded_bytes());
  for (size_t at = 0; at < bytes.size(); at += step) {
    const auto piece = std::span(bytes).subspan(at, std::min(step, bytes.size() - at));
    EXPECT_TRUE(body.read(at, piece));
  }
  return bytes;
}

TEST(TrailedBodyTest, OurDecoderFindsTheContentAndItsChecksumInPiecesOfAnySize) {
  for (const ChecksumAlgorithm algorithm :
       {ChecksumAlgorithm::kCrc32, ChecksumAlgorithm::kCrc32c, ChecksumAlgorithm::kCrc64Nvme})
    for (const size_t size : {1UL, 15UL, 16UL, 255UL, 256UL, 4096UL, 70'001UL})
      for (const size_t step : {1UL, 7UL, 4096UL, 1'000'000UL}) {
        const auto content = noise(size);
        TrailedBody body(algorithm, reader_of(content), size);
        const auto bytes = encoded(body, step);
        EXPECT_EQ(body.checksum_base64(), checksum_base64(algorithm, content));
        AwsChunkedDecoder decoder({.signer = {},
                                   .has_trailers = true,
                                   .trailers = {std::string(checksum_header(algorithm))},
                                   .decoded_size_bytes = size});
        std::vector<std::byte> decoded;
        for (std::span<const std::byte> left = bytes; !left.empty();) {
          const auto piece = decoder.next(left);
          ASSERT_TRUE(piece) << piece.error().message;
          decoded.insert(decoded.end(), piece->begin(), piece->end());
        }
        EXPECT_TRUE(decoder.finish());
        EXPECT_EQ(decoded, content) << size << " by " << step;
      }
}

TEST(TrailedBodyTest, ABodyBegunAgainIsTheSame) {
  const auto content = noise(10'000);
  TrailedBody body(ChecksumAlgorithm::kCrc64Nvme, reader_of(content), content.size());
  std::vector<std::byte> some(3000);
  ASSERT_TRUE(body.read(0, some));
  const auto first = encoded(body, 999);
  EXPECT_EQ(encoded(body, 5000), first);
}

TEST(TrailedBodyTest, WhatIsAskedForOutOfOrderIsRefused) {
  const auto content = noise(100);
  TrailedBody body(ChecksumAlgorithm::kCrc64Nvme, reader_of(content), content.size());
  std::vector<std::byte> some(10);
  ASSERT_TRUE(body.read(0, some));
  EXPECT_EQ(body.read(11, some).error().code, Code::kInternal);
  EXPECT_EQ(body.read(9, some).error().code, Code::kInternal);
  EXPECT_TRUE(body.read(10, some));
}

TEST(TrailedBodyTest, ErrorsOfTheReaderArePassedOn) {
  const RangeReader fail = [](uint64_t, std::span<std::byte>) -> Status {
    return Error{Code::kCorrupt, "changed"};
  };
  TrailedBody body(ChecksumAlgorithm::kCrc64Nvme, fail, 100);
  std::vector<std::byte> some(10);
  EXPECT_EQ(body.read(0, some).error().code, Code::kCorrupt);
}

}  // namespace
}  // namespace yard::storage
