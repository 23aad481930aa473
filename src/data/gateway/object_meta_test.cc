#include "gateway/object_meta.h"

#include <gtest/gtest.h>

namespace yard::gateway {
namespace {

StampedMeta example() {
  return {
      {.etag = "0123456789abcdef0123456789abcdef-3",
       .headers = {{"content-type", "text/plain; charset=\"x\""}, {"expires", "never & ever"}},
       .user = {{"colour", "bl\xFC e=1&2"}, {"empty", ""}},
       .checksum = ObjectChecksum{ChecksumAlgorithm::kSha256, ChecksumType::kComposite, "q+/w==-3"},
       .part_sizes_bytes = {8 << 20, 8 << 20, 17},
       .upload_id = "0a1b2c"},
      {12345, (16 << 20) + 17, 1'700'000'000'123'456'789}};
}

TEST(ObjectMetaTest, WhatIsWrittenIsRead) {
  const StampedMeta written = example();
  const auto read = decode_meta(encode_meta(written));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->meta, written.meta);
  EXPECT_EQ(read->stamp, written.stamp);
}

TEST(ObjectMetaTest, TenThousandEqualPartsTakeAFewBytes) {
  StampedMeta many = example();
  many.meta.part_sizes_bytes.assign(9'999, 5 << 20);
  many.meta.part_sizes_bytes.push_back(1);
  const std::string text = encode_meta(many);
  EXPECT_LT(text.size(), 512u);
  EXPECT_EQ(decode_meta(text)->meta.part_sizes_bytes, many.meta.part_sizes_bytes);
}

TEST(ObjectMetaTest, TextOfAnotherKindIsNoMetadata) {
  for (const char* text : {"", "etag=", "etag=x&size=-1", "etag=x&size=1x", "etag=x&unknown=1",
                           "etag=x&c.MD6=1", "etag=x&parts=1x99999", "etag=x&parts=a", "etag=%zz",
                           "etag=x&parts=1x18446744073709551615"})
    EXPECT_FALSE(decode_meta(text)) << text;
}

TEST(ObjectMetaTest, TheEtagOfAFileIsNoMd5AndChangesWithTheFile) {
  const FileStamp stamp{1, 2, 3};
  EXPECT_EQ(etag_of(stamp), etag_of(stamp));
  EXPECT_EQ(etag_of(stamp).size(), 34u);
  EXPECT_TRUE(etag_of(stamp).ends_with("-0"));
  EXPECT_NE(etag_of(stamp), etag_of({2, 2, 3}));
  EXPECT_NE(etag_of(stamp), etag_of({1, 3, 3}));
  EXPECT_NE(etag_of(stamp), etag_of({1, 2, 4}));
}

}  // namespace
}  // namespace yard::gateway
