#include "api/logs_service.h"

#include <gtest/gtest.h>

#include "api/log_filter.h"
#include "api/testing/memory_desk.h"
#include "api/testing/service_calls.h"
#include "api/testing/signed_client.h"
#include "base/testing/fake_clock.h"
#include "logs/log_stream.h"

namespace yard::api {
namespace {

constexpr const char* kGroup = "/aws/sagemaker/TrainingJobs";

class LogsServiceTest : public testing::Test {
 protected:
  AwsResult<Json> call(const std::string& operation, Json input) {
    if (!input.contains("logGroupName") && operation != "DescribeLogGroups")
      input["logGroupName"] = kGroup;
    return call_service(*service_, operation, input);
  }
  void create(const std::string& name, std::vector<std::string> hosts) {
    ASSERT_TRUE(desk_.create({.kind = jobs::JobKind::kTraining,
                              .name = name,
                              .arn = name,
                              .request = {},
                              .tags = {},
                              .user = ""}));
    (void)desk_.change(jobs::JobKind::kTraining, name, [&](engine::JobView& view) -> Status {
      view.hosts = hosts;
      view.created_t = 1796007511.5;
      return Ok{};
    });
    std::filesystem::create_directories(folder_ / (name + "/logs"));
  }
  void append(const std::string& job, const std::string& host, int64_t t_ms,
              const std::vector<std::string_view>& lines) {
    auto writer = logs::LogWriter::open({.path = folder_ / (job + "/logs/" + host + ".log")});
    ASSERT_TRUE(writer) << writer.error().message;
    ASSERT_TRUE(writer->append_at(t_ms, lines));
  }
  static std::vector<std::string> messages(const AwsResult<Json>& answer) {
    std::vector<std::string> texts;
    EXPECT_TRUE(answer) << answer.error().message;
    for (const Json& event : (*answer)["events"]) texts.push_back(event["message"]);
    return texts;
  }

  TempFolder folder_;
  MemoryDesk desk_{folder_.path()};
  FakeClock clock_;
  OwnLogs own_{folder_ / "own"};
  std::unique_ptr<Service> service_ = make_logs_service(desk_, own_, {}, clock_);
};

using Texts = std::vector<std::string>;

TEST_F(LogsServiceTest, EveryHostHasAStreamAlsoASilentOne) {
  create("job", {"algo-1", "algo-2"});
  append("job", "algo-1", 5000, {"hello"});
  const auto told =
      call("DescribeLogStreams", {{"logStreamNamePrefix", "job/"}, {"orderBy", "LogStreamName"}});
  ASSERT_TRUE(told);
  const Json& streams = (*told)["logStreams"];
  ASSERT_EQ(streams.size(), 2u);
  EXPECT_EQ(streams[0]["logStreamName"], "job/algo-1-1796007511");
  EXPECT_EQ(streams[0]["lastEventTimestamp"], 5000);
  EXPECT_EQ(streams[1]["logStreamName"], "job/algo-2-1796007511");
  EXPECT_FALSE(streams[1].contains("lastEventTimestamp"));
  EXPECT_EQ(messages(call("GetLogEvents",
                          {{"logStreamName", "job/algo-2-1796007511"}, {"startFromHead", true}})),
            Texts{});
}

TEST_F(LogsServiceTest, StreamsOfAJobAreToldAtOnceSinceTheOldSdkWouldNeverEnd) {
  std::vector<std::string> hosts;
  for (int i = 1; i <= 70; ++i) hosts.push_back("algo-" + std::to_string(i));
  create("job", hosts);
  const auto told = call("DescribeLogStreams", {{"logStreamNamePrefix", "job/"}, {"limit", 50}});
  EXPECT_EQ((*told)["logStreams"].size(), 70u);
  EXPECT_FALSE(told->contains("nextToken"));
  EXPECT_EQ(
      (*call("DescribeLogStreams", {{"logStreamNamePrefix", "job/algo-10"}}))["logStreams"].size(),
      1u);
  EXPECT_TRUE(
      (*call("DescribeLogStreams", {{"logStreamNamePrefix", "gone/"}}))["logStreams"].empty());
}

TEST_F(LogsServiceTest, WithoutAJobStreamsHavePages) {
  for (int i = 0; i < 3; ++i) create("job-" + std::to_string(i), {"algo-1"});
  const auto first = call("DescribeLogStreams", {{"limit", 2}});
  EXPECT_EQ((*first)["logStreams"].size(), 2u);
  const auto rest =
      call("DescribeLogStreams", {{"limit", 2}, {"nextToken", (*first)["nextToken"]}});
  EXPECT_EQ((*rest)["logStreams"][0]["logStreamName"], "job-2/algo-1-1796007511");
  EXPECT_FALSE(rest->contains("nextToken"));
}

TEST_F(LogsServiceTest, WhoHasReadAllGetsNothingAndTheSameTokenForever) {
  create("job", {"algo-1"});
  append("job", "algo-1", 5000, {"a", "b"});
  const Json stream = {{"logStreamName", "job/algo-1-1796007511"}, {"startFromHead", true}};
  const auto first = call("GetLogEvents", stream);
  EXPECT_EQ(messages(first), (Texts{"a", "b"}));
  Json next = stream;
  next["nextToken"] = (*first)["nextForwardToken"];
  for (int i = 0; i < 2; ++i) {
    const auto nothing = call("GetLogEvents", next);
    EXPECT_EQ(messages(nothing), Texts{});
    EXPECT_EQ((*nothing)["nextForwardToken"], next["nextToken"]);
  }
  append("job", "algo-1", 6000, {"c"});
  EXPECT_EQ(messages(call("GetLogEvents", next)), Texts{"c"});
  next["nextToken"] = (*call("GetLogEvents", next))["nextBackwardToken"];
  EXPECT_EQ(messages(call("GetLogEvents", next)), (Texts{"a", "b"}));
}

TEST_F(LogsServiceTest, TimesBoundWhatIsRead) {
  create("job", {"algo-1"});
  append("job", "algo-1", 5000, {"a"});
  append("job", "algo-1", 6000, {"b"});
  append("job", "algo-1", 7000, {"c"});
  Json input = {{"logStreamName", "job/algo-1-1796007511"}, {"startFromHead", true}};
  input["startTime"] = 6000;
  EXPECT_EQ(messages(call("GetLogEvents", input)), (Texts{"b", "c"}));
  input["endTime"] = 7000;
  EXPECT_EQ(messages(call("GetLogEvents", input)), Texts{"b"});
  EXPECT_EQ(
      messages(call("GetLogEvents", {{"logStreamName", "job/algo-1-1796007511"}, {"limit", 1}})),
      Texts{"c"});
}

TEST_F(LogsServiceTest, WhatIsNotThereOrNoTokenIsToldByName) {
  create("job", {"algo-1"});
  EXPECT_EQ(call("GetLogEvents", {{"logStreamName", "job/algo-9-1"}}).error().code,
            "ResourceNotFoundException");
  EXPECT_EQ(call("GetLogEvents", {{"logStreamName", "gone/algo-1-1"}}).error().code,
            "ResourceNotFoundException");
  EXPECT_EQ(call("DescribeLogStreams", {{"logGroupName", "/other"}}).error().code,
            "ResourceNotFoundException");
  for (const char* token : {"x", "f/", "f/1x", "g/1", "f/-1", "f/99999999999999999999999"})
    EXPECT_EQ(
        call("GetLogEvents", {{"logStreamName", "job/algo-1-1796007511"}, {"nextToken", token}})
            .error()
            .code,
        "InvalidParameterException")
        << token;
}

TEST_F(LogsServiceTest, FilteredEventsOfAllHostsComeInTheOrderOfTheirTimes) {
  create("job", {"algo-1", "algo-2"});
  append("job", "algo-1", 5000, {"ERROR 1"});
  append("job", "algo-2", 5500, {"ERROR 2", "fine"});
  append("job", "algo-1", 6000, {"fine", "ERROR 3"});
  const Json input = {{"logStreamNamePrefix", "job/"}, {"filterPattern", "ERROR"}};
  const auto all = call("FilterLogEvents", input);
  EXPECT_EQ(messages(all), (Texts{"ERROR 1", "ERROR 2", "ERROR 3"}));
  EXPECT_FALSE(all->contains("nextToken"));
  EXPECT_EQ((*all)["events"][1]["logStreamName"], "job/algo-2-1796007511");
  Texts paged;
  Json page = input;
  page["limit"] = 1;
  for (int i = 0; i < 10; ++i) {
    const auto answer = call("FilterLogEvents", page);
    for (const std::string& text : messages(answer)) paged.push_back(text);
    if (!answer->contains("nextToken")) break;
    page["nextToken"] = (*answer)["nextToken"];
  }
  EXPECT_EQ(paged, messages(all));
  page["nextToken"] = "1.2.3";
  EXPECT_FALSE(call("FilterLogEvents", page));
}

TEST_F(LogsServiceTest, GroupsAreTheTwoOfJobs) {
  const auto groups = call("DescribeLogGroups", {{"logGroupNamePrefix", "/aws/sagemaker/Train"}});
  ASSERT_EQ((*groups)["logGroups"].size(), 1u);
  EXPECT_EQ((*groups)["logGroups"][0]["logGroupName"], kGroup);
  EXPECT_EQ((*call("DescribeLogGroups", Json::object()))["logGroups"].size(), 2u);
}

TEST(LogFilterTest, TermsPhrasesChoicesAndExclusions) {
  const auto matches = [](const char* pattern, const char* message) {
    return (*LogFilter::parse(pattern)).matches(message);
  };
  EXPECT_TRUE(matches("", "anything"));
  EXPECT_TRUE(matches("ERROR loss", "loss: ERROR"));
  EXPECT_FALSE(matches("ERROR loss", "ERROR"));
  EXPECT_FALSE(matches("error", "ERROR"));
  EXPECT_TRUE(matches("?ERROR ?WARN", "WARN"));
  EXPECT_FALSE(matches("?ERROR ?WARN", "INFO"));
  EXPECT_FALSE(matches("ERROR -ignored", "ERROR ignored"));
  EXPECT_TRUE(matches("\"exit code: 1\"", "the exit code: 1"));
  EXPECT_FALSE(matches("\"exit code: 1\"", "exit: code 1"));
  EXPECT_TRUE(matches("\"say \\\"no\\\"\"", "they say \"no\""));
  for (const char* pattern : {"{ $.x = 1 }", "[a, b]", "%x%", "\"open"})
    EXPECT_EQ(LogFilter::parse(pattern).error().code, "InvalidParameterException") << pattern;
}

}  // namespace
}  // namespace yard::api
