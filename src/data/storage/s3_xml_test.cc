#include <gtest/gtest.h>

#include "storage/s3_xml_internal.h"

namespace yard::storage::s3_xml {
namespace {

TEST(S3XmlTest, AListIsReadWithAndWithoutUrlEncoding) {
  const auto list = parse_list(R"(<?xml version="1.0" encoding="UTF-8"?>
<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">
  <EncodingType>url</EncodingType><IsTruncated>true</IsTruncated>
  <NextContinuationToken>1ueGcxLPRx1Tr/XYExHnhbYLgveDs2J/wm36Hy4vbOwM=</NextContinuationToken>
  <Contents><Key>a+b%2Bc%20d/%01</Key><LastModified>2009-10-12T17:50:30.250Z</LastModified>
    <ETag>&quot;fba9dede5f27731c9771645a39863328&quot;</ETag><Size>434234</Size></Contents>
  <CommonPrefixes><Prefix>p%2F</Prefix></CommonPrefixes>
</ListBucketResult>)");
  ASSERT_TRUE(list) << list.error().message;
  EXPECT_EQ(list->objects[0].key, "a b+c d/\x01");
  EXPECT_EQ(list->objects[0].size_bytes, 434234U);
  EXPECT_EQ(list->objects[0].etag, "fba9dede5f27731c9771645a39863328");
  EXPECT_EQ(list->objects[0].modified.time_since_epoch(), std::chrono::milliseconds(1255369830250));
  EXPECT_EQ(list->common_prefixes, std::vector<std::string>{"p/"});
  EXPECT_EQ(list->continuation_token, "1ueGcxLPRx1Tr/XYExHnhbYLgveDs2J/wm36Hy4vbOwM=");
  const auto plain = parse_list(
      "<s3:ListBucketResult xmlns:s3='x'><s3:Contents><s3:Key> </s3:Key><s3:Size>0</s3:Size>"
      "</s3:Contents><s3:Contents><s3:Key>a+b%20&amp;</s3:Key><s3:Size>1</s3:Size></s3:Contents>"
      "</s3:ListBucketResult>");
  ASSERT_TRUE(plain);
  EXPECT_EQ(plain->objects[0].key, " ");
  EXPECT_EQ(plain->objects[1].key, "a+b%20&");
}

TEST(S3XmlTest, AListOfUploadsIsReadWithItsNextPage) {
  const std::string text = R"(<ListMultipartUploadsResult>
  <EncodingType>url</EncodingType><IsTruncated>true</IsTruncated>
  <NextKeyMarker>b%20c</NextKeyMarker><NextUploadIdMarker>two</NextUploadIdMarker>
  <Upload><Key>a</Key><UploadId>one</UploadId><Initiated>2009-10-12T17:50:30.000Z</Initiated></Upload>
  <Upload><Key>b%20c</Key><UploadId>two</UploadId></Upload>
</ListMultipartUploadsResult>)";
  const auto list = parse_uploads(text);
  ASSERT_TRUE(list) << list.error().message;
  ASSERT_EQ(list->uploads.size(), 2u);
  EXPECT_EQ(list->uploads[0].id, "one");
  EXPECT_EQ(list->uploads[0].begun.time_since_epoch(), std::chrono::seconds(1255369830));
  EXPECT_EQ(list->uploads[1].key, "b c");
  EXPECT_EQ(list->next_key, "b c");
  EXPECT_EQ(list->next_id, "two");
  for (size_t size = 0; size + 1 < text.size(); ++size)
    EXPECT_FALSE(parse_uploads(text.substr(0, size))) << size;
  EXPECT_FALSE(
      parse_uploads("<ListMultipartUploadsResult><Upload><Key>k</Key></Upload>"
                    "</ListMultipartUploadsResult>"));
  EXPECT_FALSE(
      parse_uploads("<ListMultipartUploadsResult><IsTruncated>true</IsTruncated>"
                    "</ListMultipartUploadsResult>"));
}

TEST(S3XmlTest, AListCutAnywhereIsCorrupt) {
  const std::string whole =
      "<ListBucketResult><Contents><Key>k</Key><Size>5</Size></Contents></ListBucketResult>";
  ASSERT_TRUE(parse_list(whole));
  for (size_t size = 0; size < whole.size(); ++size)
    EXPECT_FALSE(parse_list(whole.substr(0, size))) << size;
}

TEST(S3XmlTest, NestingWithoutEndIsNoStackOverflow) {
  std::string deep = "<ListBucketResult>";
  for (int i = 0; i < 200'000; ++i) deep += "<a>";
  EXPECT_FALSE(parse_list(deep));
  for (int i = 0; i < 200'000; ++i) deep += "</a>";
  EXPECT_TRUE(parse_list(deep + "</ListBucketResult>"));
}

TEST(S3XmlTest, EntitiesOfADocumentTypeAreNotExpanded) {
  const auto list = parse_list(
      "<!DOCTYPE x [<!ENTITY e SYSTEM \"file:///etc/passwd\">]><ListBucketResult><Contents>"
      "<Key>&e;</Key><Size>1</Size></Contents></ListBucketResult>");
  EXPECT_TRUE(!list || list->objects[0].key == "&e;");
}

TEST(S3XmlTest, OnlyAnErrorDocumentIsAnError) {
  const auto error = parse_error("<Error><Code>NoSuchKey</Code><Message>m</Message></Error>");
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code, "NoSuchKey");
  EXPECT_EQ(error->message, "m");
  for (const char* other : {"", "Error", "<html><body>502</body></html>", "<CopyObjectResult/>"})
    EXPECT_FALSE(parse_error(other)) << other;
}

TEST(S3XmlTest, WhatIsWrittenIsReadBack) {
  const std::vector<std::string> keys = {"a&b", "<c>", "d\re", "\"é\""};
  const std::string xml = delete_keys(keys);
  EXPECT_NE(xml.find("<Key>a&amp;b</Key>"), std::string::npos) << xml;
  EXPECT_NE(xml.find("<Key>&lt;c&gt;</Key>"), std::string::npos);
  EXPECT_NE(xml.find("<Key>d&#13;e</Key>"), std::string::npos);
  EXPECT_TRUE(can_write("a\tb\nc"));
  EXPECT_FALSE(can_write("a\x01"));
  const std::string parts = complete_upload({{1, "abc", "AAAA"}, {2, "def", ""}}, "ChecksumCRC32C");
  EXPECT_NE(parts.find("<Part><PartNumber>1</PartNumber><ETag>&quot;abc&quot;</ETag>"
                       "<ChecksumCRC32C>AAAA</ChecksumCRC32C></Part>"),
            std::string::npos)
      << parts;
  EXPECT_NE(parts.find("<PartNumber>2</PartNumber><ETag>&quot;def&quot;</ETag></Part>"),
            std::string::npos);
}

TEST(S3XmlTest, TimesThatAreNoneAreRefused) {
  EXPECT_EQ(parse_time("2024-02-29T00:00:00Z")->time_since_epoch(),
            std::chrono::seconds(1709164800));
  for (const char* bad : {"", "2023-02-29T00:00:00Z", "2024-13-01T00:00:00Z",
                          "2024-01-01T24:00:00Z", "2024-01-01 00:00:00Z", "2024-01-01T00:00:00",
                          "aaaa-01-01T00:00:00Z", "3009-10-12T17:50:30Z"})
    EXPECT_FALSE(parse_time(bad)) << bad;
}

}  // namespace
}  // namespace yard::storage::s3_xml
