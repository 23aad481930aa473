#include "api/own_logs.h"

#include <gtest/gtest.h>

#include "api/logs_service.h"
#include "api/testing/memory_desk.h"
#include "api/testing/service_calls.h"
#include "api/testing/signed_client.h"
#include "base/testing/fake_clock.h"

namespace yard::api {
namespace {

class OwnLogsTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(answer("CreateLogGroup", {{"logGroupName", "/team/app"}}), Json());
    ASSERT_EQ(answer("CreateLogStream", stream()), Json());
  }
  static Json stream(Json more = Json::object()) {
    Json input = {{"logGroupName", "/team/app"}, {"logStreamName", "host/1"}};
    input.update(more);
    return input;
  }
  Json answer(const std::string& operation, const Json& input) {
    return answer_of(*service_, operation, input);
  }
  std::string error(const std::string& operation, const Json& input) {
    return error_code_of(*service_, operation, input);
  }
  int64_t now_ms() const { return static_cast<int64_t>(1000 * to_unix_seconds(clock_.wall_now())); }
  Json put(int64_t t_ms, const std::string& message) {
    return answer("PutLogEvents",
                  stream({{"logEvents", {{{"timestamp", t_ms}, {"message", message}}}}}));
  }
  std::vector<std::string> messages() {
    std::vector<std::string> texts;
    const Json page = answer("GetLogEvents", stream({{"startFromHead", true}}));
    for (const Json& event : page["events"]) texts.push_back(event["message"]);
    return texts;
  }

  TempFolder folder_;
  FakeClock clock_;
  MemoryDesk desk_;
  OwnLogs own_{folder_ / "own"};
  std::unique_ptr<Service> service_ = make_logs_service(desk_, own_, {}, clock_);
};

TEST_F(OwnLogsTest, WhatWasPutIsReadAlsoBySomebodyWhoComesLater) {
  put(now_ms(), "first");
  put(now_ms() + 5, "two\nlines\n");
  EXPECT_EQ(messages(), (std::vector<std::string>{"first", "two", "lines"}));
  OwnLogs later(folder_ / "own");
  service_ = make_logs_service(desk_, later, {}, clock_);
  EXPECT_EQ(messages().size(), 3u);
  const Json found =
      answer("FilterLogEvents", {{"logGroupName", "/team/app"}, {"filterPattern", "two"}});
  ASSERT_EQ(found["events"].size(), 1u);
  EXPECT_EQ(found["events"][0]["logStreamName"], "host/1");
}

TEST_F(OwnLogsTest, GroupsAndStreamsAreListedBesideThoseOfJobs) {
  const Json groups = answer("DescribeLogGroups", {{"logGroupNamePrefix", "/"}})["logGroups"];
  EXPECT_EQ(groups.size(), 3u);
  const Json own = answer("DescribeLogGroups", {{"logGroupNamePrefix", "/team"}})["logGroups"];
  ASSERT_EQ(own.size(), 1u);
  EXPECT_EQ(own[0]["logGroupName"], "/team/app");
  const Json streams = answer("DescribeLogStreams", {{"logGroupName", "/team/app"}})["logStreams"];
  ASSERT_EQ(streams.size(), 1u);
  EXPECT_EQ(streams[0]["logStreamName"], "host/1");
}

TEST_F(OwnLogsTest, WhatIsThereOrIsNotThereIsToldInAwsWords) {
  EXPECT_EQ(error("CreateLogGroup", {{"logGroupName", "/team/app"}}),
            "ResourceAlreadyExistsException");
  EXPECT_EQ(error("CreateLogStream", stream()), "ResourceAlreadyExistsException");
  EXPECT_EQ(error("CreateLogStream", {{"logGroupName", "none"}, {"logStreamName", "s"}}),
            "ResourceNotFoundException");
  EXPECT_EQ(error("GetLogEvents", {{"logGroupName", "/team/app"}, {"logStreamName", "none"}}),
            "ResourceNotFoundException");
  EXPECT_EQ(error("DescribeLogStreams", {{"logGroupName", "none"}}), "ResourceNotFoundException");
}

TEST_F(OwnLogsTest, StreamsOfJobsAreNotForClientsToWrite) {
  for (const char* group : {"/aws/sagemaker/TrainingJobs", "/aws/sagemaker/ProcessingJobs"}) {
    EXPECT_EQ(error("CreateLogGroup", {{"logGroupName", group}}), "InvalidParameterException");
    EXPECT_EQ(error("PutLogEvents", {{"logGroupName", group},
                                     {"logStreamName", "job/algo-1-1"},
                                     {"logEvents", {{{"timestamp", 1}, {"message", "x"}}}}}),
              "InvalidParameterException");
  }
}

TEST_F(OwnLogsTest, EventsOfAnotherTimeAreRejectedAndTold) {
  const int64_t day_ms = 86'400'000;
  const Json answer = put(now_ms() - 15 * day_ms, "too old");
  EXPECT_EQ(answer["rejectedLogEventsInfo"]["tooOldLogEventEndIndex"], 1);
  EXPECT_EQ(
      put(now_ms() + 3 * 3'600'000, "too new")["rejectedLogEventsInfo"]["tooNewLogEventStartIndex"],
      0);
  EXPECT_TRUE(messages().empty());
  const auto two = [&](int64_t first, int64_t second) {
    return error("PutLogEvents", stream({{"logEvents",
                                          {{{"timestamp", first}, {"message", "a"}},
                                           {{"timestamp", second}, {"message", "b"}}}}}));
  };
  EXPECT_EQ(two(now_ms(), now_ms() - 1), "InvalidParameterException");
  EXPECT_EQ(two(now_ms() - 2 * day_ms, now_ms()), "InvalidParameterException");
  EXPECT_EQ(two(now_ms() - 1, now_ms()), "");
}

TEST_F(OwnLogsTest, ABatchBeyondAMebibyteIsRefused) {
  Json events = Json::array();
  for (int i = 0; i < 5; ++i)
    events.push_back({{"timestamp", now_ms()}, {"message", std::string(250'000, 'x')}});
  EXPECT_EQ(error("PutLogEvents", stream({{"logEvents", events}})), "InvalidParameterException");
}

TEST_F(OwnLogsTest, RemovedStreamsAndGroupsAreGone) {
  put(now_ms(), "x");
  answer("DeleteLogStream", stream());
  EXPECT_EQ(error("GetLogEvents", stream()), "ResourceNotFoundException");
  answer("DeleteLogGroup", {{"logGroupName", "/team/app"}});
  EXPECT_EQ(error("DescribeLogStreams", {{"logGroupName", "/team/app"}}),
            "ResourceNotFoundException");
}

}  // namespace
}  // namespace yard::api
