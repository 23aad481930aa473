#include <gtest/gtest.h>

#include "storage/s3_upload_internal.h"

namespace yard::storage {
namespace {

constexpr uint64_t kMiB = 1 << 20;
constexpr uint64_t kTiB = uint64_t{1} << 40;

int count_parts(uint64_t part_bytes, uint64_t size_bytes, uint64_t hint) {
  int count = 0;
  for (uint64_t at = 0; at < size_bytes; ++count) {
    const uint64_t bytes = s3_part_bytes(part_bytes, hint, count);
    EXPECT_GE(bytes, part_bytes);
    EXPECT_LE(bytes, kS3PartBytesMax);
    at += bytes;
  }
  return count;
}

TEST(S3PartBytesTest, WhateverIsAnnouncedFitsIntoTenThousandParts) {
  for (const uint64_t part_bytes : {5 * kMiB, 8 * kMiB, 64 * kMiB})
    for (const uint64_t size : {uint64_t{1}, 5 * kMiB, 5 * kMiB + 1, 50'000 * kMiB,
                                50'000 * kMiB + 1, 80'001 * kMiB, kTiB, 5 * kTiB})
      EXPECT_LE(count_parts(part_bytes, size, size), kS3PartCountMax) << part_bytes << " " << size;
}

TEST(S3PartBytesTest, FiveTebibytesFitAlsoWhenNothingWasAnnounced) {
  for (const uint64_t part_bytes : {8 * kMiB, 64 * kMiB})
    EXPECT_LE(count_parts(part_bytes, 5 * kTiB, 0), kS3PartCountMax) << part_bytes;
}

TEST(S3PartBytesTest, PartsAreOfOneSizeWhereTheyFit) {
  for (const int index : {0, 1, 999, 1000, 5000})
    EXPECT_EQ(s3_part_bytes(8 * kMiB, 50'000 * kMiB, index), 8 * kMiB) << index;
}

}  // namespace
}  // namespace yard::storage
