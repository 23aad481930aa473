#include "gateway/xml.h"

#include <gtest/gtest.h>

namespace yard::gateway {
namespace {

TEST(XmlWriterTest, NoTextBecomesMarkup) {
  XmlWriter xml("R", XmlWriter::Namespace::kNone);
  xml.text("K", "<a>&\"b\x01\r\n\xC3\xBC").number("N", 7).open("O").flag("F", true);
  EXPECT_EQ(xml.take(),
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<R><K>&lt;a&gt;&amp;&quot;b&#x1;&#xd;&#xa;"
            "\xC3\xBC</K><N>7</N><O><F>true</F></O></R>");
}

TEST(XmlReadTest, ADeleteRequestIsReadInAnyNamespace) {
  const auto request = read_delete_request(
      "<?xml version='1.0'?><s:Delete xmlns:s='http://s3.amazonaws.com/doc/2006-03-01/'>"
      "<s:Quiet>true</s:Quiet><s:Object><s:Key> a &lt;b&#x9;</s:Key></s:Object>"
      "<s:Object><s:Key>c</s:Key><s:VersionId>v</s:VersionId><s:ETag>\"e\"</s:ETag></s:Object></"
      "s:Delete>");
  ASSERT_TRUE(request);
  EXPECT_TRUE(request->is_quiet);
  ASSERT_EQ(request->objects.size(), 2u);
  EXPECT_EQ(request->objects[0].key, " a <b\t");
  EXPECT_FALSE(request->objects[0].etag);
  EXPECT_EQ(request->objects[1].version_id, "v");
  EXPECT_EQ(request->objects[1].etag, "e");
}

TEST(XmlReadTest, OneToAThousandObjectsAreDeletedAtOnce) {
  const auto of_count = [](int count) {
    std::string text = "<Delete>";
    for (int i = 0; i < count; ++i) text += "<Object><Key>k</Key></Object>";
    return read_delete_request(text + "</Delete>");
  };
  EXPECT_FALSE(of_count(0));
  EXPECT_TRUE(of_count(1000));
  EXPECT_FALSE(of_count(1001));
}

TEST(XmlReadTest, PartsAreReadWithTheirChecksums) {
  const auto parts = read_complete_request(
      "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>&quot;a&quot;</ETag></Part>"
      "<Part><ETag>b</ETag><ChecksumCRC32C>AAAAAA==</ChecksumCRC32C><PartNumber>10000</PartNumber>"
      "</Part></CompleteMultipartUpload>");
  ASSERT_TRUE(parts);
  ASSERT_EQ(parts->size(), 2u);
  EXPECT_EQ((*parts)[0].etag, "a");
  EXPECT_FALSE((*parts)[0].checksum);
  EXPECT_EQ((*parts)[1].number, 10000u);
  EXPECT_EQ((*parts)[1].checksum->first, ChecksumAlgorithm::kCrc32c);
}

TEST(XmlReadTest, OtherDocumentsAreMalformed) {
  const std::string deep = [] {
    std::string text;
    for (int i = 0; i < 100'000; ++i) text += "<Delete>";
    return text;
  }();
  for (const std::string& text :
       {std::string(), std::string("x"), std::string("<Delete>"), std::string("<Other/>"),
        std::string("<Delete><Object/></Delete>"),
        std::string("<Delete><Object><Key/></Object></Delete>"),
        std::string("<!DOCTYPE d [<!ENTITY e 'x'>]><Delete></Delete>"), deep}) {
    EXPECT_FALSE(read_delete_request(text)) << text.substr(0, 60);
    EXPECT_FALSE(read_complete_request(text)) << text.substr(0, 60);
    EXPECT_FALSE(read_notification_rules(text)) << text.substr(0, 60);
  }
  for (const char* number : {"", "-1", "0", "10001", "1x", "99999999999"})
    EXPECT_FALSE(read_complete_request(
        std::string("<CompleteMultipartUpload><Part><ETag>a</ETag><PartNumber>") + number +
        "</PartNumber></Part></CompleteMultipartUpload>"));
}

TEST(XmlReadTest, EntitiesOfADocumentAreNotExpanded) {
  const auto request = read_delete_request(
      "<!DOCTYPE d [<!ENTITY e SYSTEM "
      "'file:///etc/passwd'>]><Delete><Object><Key>&e;</Key></Object></Delete>");
  ASSERT_TRUE(request);
  EXPECT_EQ(request->objects[0].key, "&e;");
}

TEST(XmlReadTest, ALocationIsOptional) {
  EXPECT_EQ(*read_location_constraint(""), "");
  EXPECT_EQ(*read_location_constraint(
                "<CreateBucketConfiguration><LocationConstraint>eu-west-1</LocationConstraint>"
                "</CreateBucketConfiguration>"),
            "eu-west-1");
  EXPECT_FALSE(read_location_constraint("<x/>"));
}

TEST(XmlReadTest, NotificationRulesAreReadAsTheyWereWritten) {
  const std::vector<NotificationRule> rules = {
      {"a",
       NotificationRule::TargetKind::kQueue,
       "arn:q",
       {"s3:ObjectCreated:*", "s3:ObjectRemoved:Delete"},
       "in/",
       ".jpg"},
      {"b", NotificationRule::TargetKind::kFunction, "arn:f", {"s3:ObjectCreated:Put"}, "", ""}};
  EXPECT_EQ(*read_notification_rules(write_notification_rules(rules)), rules);
  EXPECT_TRUE(read_notification_rules("<NotificationConfiguration/>")->empty());
}

TEST(XmlReadTest, ARuleForWhatNeverHappensIsRefused) {
  const auto with_event = [](const std::string& event) {
    return read_notification_rules(
        "<NotificationConfiguration><QueueConfiguration><Queue>q</Queue><Event>" + event +
        "</Event></QueueConfiguration></NotificationConfiguration>");
  };
  EXPECT_TRUE(with_event("s3:ObjectRemoved:*"));
  EXPECT_EQ(with_event("s3:Teleported").error().code, "InvalidArgument");
}

}  // namespace
}  // namespace yard::gateway
