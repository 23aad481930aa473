#include "api/sqs_service.h"

#include <gtest/gtest.h>

#include "api/query_form.h"
#include "api/testing/service_calls.h"
#include "api/testing/signed_client.h"
#include "base/testing/fake_clock.h"

namespace yard::api {
namespace {

using namespace std::chrono_literals;

class SqsServiceTest : public testing::Test {
 protected:
  SqsServiceTest() {
    auto opened = queue::MessageQueues::open(
        {.path = folder_ / "queues.db", .power_safe = false, .clock = &clock_});
    YARD_CHECK(opened.has_value());
    queues_ = std::make_unique<queue::MessageQueues>(*std::move(opened));
    service_ = make_sqs_service(*queues_, {});
  }
  Json ok(const std::string& operation, const Json& input) {
    return answer_of(*service_, operation, input);
  }
  std::string code(const std::string& operation, const Json& input) {
    return error_code_of(*service_, operation, input);
  }
  std::string make(const std::string& name, const Json& attributes = Json::object()) {
    return ok("CreateQueue", {{"QueueName", name}, {"Attributes", attributes}})["QueueUrl"];
  }

  TempFolder folder_;
  FakeClock clock_;
  std::unique_ptr<queue::MessageQueues> queues_;
  std::unique_ptr<Service> service_;
};

TEST_F(SqsServiceTest, AMessageGoesThroughWithItsDigests) {
  const std::string url = make("work");
  EXPECT_EQ(url, "http://127.0.0.1:8080/123456789012/work");
  // Both digests computed by hand, as SQS describes them.
  const Json sent = ok("SendMessage",
                       {{"QueueUrl", url},
                        {"MessageBody", "hello"},
                        {"MessageAttributes",
                         {{"test_attribute_name_1",
                           {{"DataType", "String"}, {"StringValue", "test_attribute_value_1"}}}}}});
  EXPECT_EQ(sent["MD5OfMessageBody"], "5d41402abc4b2a76b9719d911017c592");
  EXPECT_EQ(sent["MD5OfMessageAttributes"], "ba056227cfd9533dba1f72ad9816d233");
  const Json received =
      ok("ReceiveMessage", {{"QueueUrl", url},
                            {"AttributeNames", {"All"}},
                            {"MessageAttributeNames", {"test_*", "test_attribute.*"}}});
  ASSERT_EQ(received["Messages"].size(), 1u);
  const Json& message = received["Messages"][0];
  EXPECT_EQ(message["MessageId"], sent["MessageId"]);
  EXPECT_EQ(message["MD5OfBody"], sent["MD5OfMessageBody"]);
  EXPECT_EQ(message["Attributes"]["ApproximateReceiveCount"], "1");
  EXPECT_FALSE(message.contains("MessageAttributes"));
  clock_.advance(30s);
  const Json again = ok("ReceiveMessage",
                        {{"QueueUrl", url}, {"MessageAttributeNames", {"test_attribute_name_1"}}});
  EXPECT_EQ(again["Messages"][0]["MD5OfMessageAttributes"], sent["MD5OfMessageAttributes"]);
  EXPECT_EQ(again["Messages"][0]["MessageAttributes"]["test_attribute_name_1"]["StringValue"],
            "test_attribute_value_1");
  ok("DeleteMessage",
     {{"QueueUrl", url}, {"ReceiptHandle", again["Messages"][0]["ReceiptHandle"]}});
  EXPECT_EQ(
      ok("GetQueueAttributes",
         {{"QueueUrl", url},
          {"AttributeNames", {"All"}}})["Attributes"]["ApproximateNumberOfMessagesNotVisible"],
      "0");
}

TEST_F(SqsServiceTest, AttributesAreTextsOnTheWire) {
  const std::string dead = make("dead");
  const std::string arn =
      ok("GetQueueAttributes",
         {{"QueueUrl", dead}, {"AttributeNames", {"QueueArn"}}})["Attributes"]["QueueArn"];
  const std::string policy = Json{{"deadLetterTargetArn", arn}, {"maxReceiveCount", "2"}}.dump();
  const std::string url = make("work", {{"VisibilityTimeout", "7"}, {"RedrivePolicy", policy}});
  const Json attributes =
      ok("GetQueueAttributes", {{"QueueUrl", url}, {"AttributeNames", {"All"}}})["Attributes"];
  EXPECT_EQ(attributes["VisibilityTimeout"], "7");
  EXPECT_EQ(Json::parse(attributes["RedrivePolicy"].get<std::string>())["maxReceiveCount"], 2);
  ok("SetQueueAttributes", {{"QueueUrl", url}, {"Attributes", {{"DelaySeconds", "3"}}}});
  EXPECT_EQ(ok("GetQueueAttributes", {{"QueueUrl", url}, {"AttributeNames", {"DelaySeconds"}}}),
            (Json{{"Attributes", {{"DelaySeconds", "3"}}}}));
  EXPECT_EQ(code("CreateQueue", {{"QueueName", "work"}}), "QueueNameExists");
}

TEST_F(SqsServiceTest, WhatIsWrongIsNamedByItsCode) {
  const std::string url = make("work");
  const auto set = [&](const char* name, const char* value) {
    return code("SetQueueAttributes", {{"QueueUrl", url}, {"Attributes", {{name, value}}}});
  };
  EXPECT_EQ(set("VisibilityTimeout", "43201"), "InvalidAttributeValue");
  EXPECT_EQ(set("VisibilityTimeout", "x"), "InvalidAttributeValue");
  EXPECT_EQ(set("RedrivePolicy", "{"), "InvalidAttributeValue");
  EXPECT_EQ(
      set("RedrivePolicy", R"({"deadLetterTargetArn":"arn:aws:sqs:r:1:none","maxReceiveCount":1})"),
      "InvalidParameterValue");
  EXPECT_EQ(set("FifoQueue", "true"), "UnsupportedOperation");
  EXPECT_EQ(set("KmsMasterKeyId", "alias/x"), "UnsupportedOperation");
  EXPECT_EQ(code("CreateQueue", {{"QueueName", "a.fifo"}}), "UnsupportedOperation");
  EXPECT_EQ(code("CreateQueue", {{"QueueName", "a b"}}), "InvalidParameterValue");
  const Json nowhere = {{"QueueUrl", "http://h/1/none"}};
  EXPECT_EQ(code("ReceiveMessage", nowhere), "QueueDoesNotExist");
  EXPECT_EQ(code("PurgeQueue", nowhere), "QueueDoesNotExist");
  EXPECT_EQ(code("GetQueueUrl", {{"QueueName", "none"}}), "QueueDoesNotExist");
  EXPECT_EQ(code("ReceiveMessage", {{"QueueUrl", url}, {"MaxNumberOfMessages", 11}}),
            "InvalidParameterValue");
  EXPECT_EQ(code("ReceiveMessage", {{"QueueUrl", url}, {"WaitTimeSeconds", 21}}),
            "InvalidParameterValue");
  EXPECT_EQ(code("SendMessage", {{"QueueUrl", url}, {"MessageBody", ""}}), "InvalidParameterValue");
  EXPECT_EQ(code("SendMessage", {{"QueueUrl", url}, {"MessageBody", std::string(1'048'577, 'x')}}),
            "InvalidParameterValue");
  EXPECT_EQ(code("SendMessage", {{"QueueUrl", url},
                                 {"MessageBody", "x"},
                                 {"MessageAttributes", {{"a", {{"DataType", "Date"}}}}}}),
            "InvalidParameterValue");
  EXPECT_EQ(code("ChangeMessageVisibility",
                 {{"QueueUrl", url}, {"ReceiptHandle", "1-x"}, {"VisibilityTimeout", 3}}),
            "MessageNotInflight");
  const Json nonsense = {
      {"QueueUrl", url}, {"ReceiptHandle", "nonsense"}, {"VisibilityTimeout", 3}};
  for (const char* operation : {"DeleteMessage", "ChangeMessageVisibility"})
    EXPECT_EQ(code(operation, nonsense), "ReceiptHandleIsInvalid") << operation;
  EXPECT_EQ(code("DeleteMessage", {{"QueueUrl", nowhere["QueueUrl"]}, {"ReceiptHandle", "x"}}),
            "QueueDoesNotExist");
}

TEST_F(SqsServiceTest, EntriesOfABatchSucceedAndFailForThemselves) {
  const std::string url = make("work");
  const Json sent =
      ok("SendMessageBatch", {{"QueueUrl", url},
                              {"Entries",
                               {{{"Id", "a"}, {"MessageBody", "1"}},
                                {{"Id", "b"}, {"MessageBody", "2"}, {"DelaySeconds", 901}},
                                {{"Id", "c"}, {"MessageBody", "3"}}}}});
  EXPECT_EQ(sent["Successful"].size(), 2u);
  EXPECT_EQ(sent["Successful"][1]["Id"], "c");
  ASSERT_EQ(sent["Failed"].size(), 1u);
  EXPECT_EQ(sent["Failed"][0]["Id"], "b");
  EXPECT_EQ(sent["Failed"][0]["SenderFault"], true);
  const Json received = ok("ReceiveMessage", {{"QueueUrl", url}, {"MaxNumberOfMessages", 10}});
  ASSERT_EQ(received["Messages"].size(), 2u);
  Json entries = Json::array();
  for (const Json& message : received["Messages"])
    entries.push_back({{"Id", message["Body"]}, {"ReceiptHandle", message["ReceiptHandle"]}});
  Json changes = entries;
  changes[0]["VisibilityTimeout"] = 100;
  changes[1]["VisibilityTimeout"] = -1;
  const Json changed =
      ok("ChangeMessageVisibilityBatch", {{"QueueUrl", url}, {"Entries", changes}});
  EXPECT_EQ(changed["Successful"].size(), 1u);
  EXPECT_EQ(changed["Failed"].size(), 1u);
  EXPECT_EQ(
      ok("DeleteMessageBatch", {{"QueueUrl", url}, {"Entries", entries}})["Successful"].size(), 2u);
  Json half = entries;
  half[0]["ReceiptHandle"] = "nonsense";
  const Json deleted = ok("DeleteMessageBatch", {{"QueueUrl", url}, {"Entries", half}});
  EXPECT_EQ(deleted["Failed"][0]["Code"], "ReceiptHandleIsInvalid");
  EXPECT_EQ(deleted["Successful"].size(), 1u);
  entries[1]["Id"] = entries[0]["Id"];
  EXPECT_EQ(code("DeleteMessageBatch", {{"QueueUrl", url}, {"Entries", entries}}),
            "BatchEntryIdsNotDistinct");
  EXPECT_EQ(code("DeleteMessageBatch", {{"QueueUrl", url}, {"Entries", Json::array()}}),
            "EmptyBatchRequest");
  entries = Json(11, Json{{"Id", "x"}, {"ReceiptHandle", "1-x"}});
  EXPECT_EQ(code("DeleteMessageBatch", {{"QueueUrl", url}, {"Entries", entries}}),
            "TooManyEntriesInBatchRequest");
}

TEST_F(SqsServiceTest, QueuesAreListedInPages) {
  for (const char* name : {"a1", "a2", "a3", "b"}) make(name);
  const Json first = ok("ListQueues", {{"QueueNamePrefix", "a"}, {"MaxResults", 2}});
  ASSERT_EQ(first["QueueUrls"].size(), 2u);
  const Json second =
      ok("ListQueues",
         {{"QueueNamePrefix", "a"}, {"MaxResults", 2}, {"NextToken", first["NextToken"]}});
  EXPECT_EQ(second["QueueUrls"], Json::array({"http://127.0.0.1:8080/123456789012/a3"}));
  EXPECT_FALSE(second.contains("NextToken"));
  EXPECT_EQ(ok("ListQueues", {{"QueueNamePrefix", "z"}}), Json::object());
}

TEST_F(SqsServiceTest, TheQueryFormOfOlderClientsMeansTheSame) {
  const auto form = parse_form(
      "QueueName=work&Attribute.1.Name=VisibilityTimeout&Attribute.1.Value=7&Attribute.2.Name="
      "DelaySeconds&Attribute.2.Value=1");
  ASSERT_TRUE(form);
  const auto input = json_of_form(*service_->model().find("CreateQueue")->input, *form);
  ASSERT_TRUE(input);
  ok("CreateQueue", *input);
  EXPECT_EQ(queues_->info("work")->attributes.visibility_timeout_s, 7);
  const Json answer = ok("GetQueueAttributes", {{"QueueUrl", "http://h/1/work"},
                                                {"AttributeNames", {"VisibilityTimeout"}}});
  const std::string xml = xml_of_answer(service_->model(), "GetQueueAttributes", answer, "id");
  EXPECT_NE(xml.find("<Attribute><Name>VisibilityTimeout</Name><Value>7</Value></Attribute>"),
            std::string::npos)
      << xml;
}

TEST_F(SqsServiceTest, WhoMayNotDeleteMayNotDeleteQueues) {
  EXPECT_EQ(service_->needed_role("ReceiveMessage"), Role::kSubmit);
  EXPECT_EQ(service_->needed_role("GetQueueAttributes"), Role::kRead);
  EXPECT_EQ(service_->needed_role("DeleteQueue"), Role::kAdmin);
  EXPECT_EQ(service_->needed_role("PurgeQueue"), Role::kAdmin);
}

}  // namespace
}  // namespace yard::api
