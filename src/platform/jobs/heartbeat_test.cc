#include "jobs/heartbeat.h"

#include <gtest/gtest.h>

#include <cmath>

#include "jobs/supervisor_event.h"

namespace yard::jobs {
namespace {

TEST(HeartbeatTest, AStepIsReadWithAllItsFields) {
  const auto got = parse_heartbeat(
      R"({"t":1764480000.25,"event":"step","stage":"32px","step":3,"global_step":13,)"
      R"("global_steps":900,"loss":0.5,"lr":0.001,"grad_norm":1.0,"samples":32,"step_s":0.4,)"
      R"("compute_s":0.3,"data_wait_s":0.05,"comm_wait_s":0.02})");
  ASSERT_TRUE(got);
  EXPECT_EQ(got->event, HeartbeatEvent::kStep);
  EXPECT_EQ(got->t, 1764480000.25);
  EXPECT_EQ(got->stage, "32px");
  EXPECT_EQ(got->step, 3);
  EXPECT_EQ(got->global_step, 13);
  EXPECT_EQ(got->global_steps, 900);
  EXPECT_EQ(got->loss, 0.5);
  EXPECT_EQ(got->samples, 32);
  EXPECT_EQ(got->compute_s, 0.3);
  EXPECT_EQ(got->data_wait_s, 0.05);
  EXPECT_EQ(got->comm_wait_s, 0.02);
}

TEST(HeartbeatTest, LinesThatAreNotHeartbeatsAreNothing) {
  for (const char* line :
       {"", "{", "[]", "3", "null", R"({"event":"step"})", R"({"t":1,"event":"nap"})",
        R"({"t":"now","event":"step"})", R"({"t":1})", R"({"t":1,"event":7})",
        R"({"t":1,"event":"phase","phase":"lunch"})", R"({"t":-5,"event":"start"})",
        R"({"t":1,"event":"step","global_st)", "\xff\xfe\x00\x01"}) {
    EXPECT_FALSE(parse_heartbeat(line)) << line;
  }
}

TEST(HeartbeatTest, FieldsOfAWrongKindCountAsAbsent) {
  const auto got = parse_heartbeat(
      R"({"t":1,"event":"step","global_step":-4,"step":"x","step_s":-1,"compute_s":null,)"
      R"("loss":null,"stage":7})");
  ASSERT_TRUE(got);
  EXPECT_EQ(got->global_step, 0);
  EXPECT_EQ(got->step, 0);
  EXPECT_EQ(got->step_s, 0);
  EXPECT_EQ(got->compute_s, 0);
  EXPECT_TRUE(std::isnan(got->loss));
  EXPECT_EQ(got->stage, "");
}

TEST(SupervisorEventTest, EveryKindIsReadBack) {
  for (int kind = 0; kind <= static_cast<int>(SupervisorEventKind::kEnded); ++kind) {
    SupervisorEvent event;
    event.t = 1764480000.5;
    event.kind = static_cast<SupervisorEventKind>(kind);
    event.detail = "why \"so\"\n\xff";
    event.attempt = 2;
    event.rank = 1;
    const std::string line = to_line(event);
    EXPECT_EQ(line.find('\n'), std::string::npos);
    const auto back = parse_supervisor_event(line);
    ASSERT_TRUE(back) << line;
    EXPECT_EQ(back->kind, event.kind);
    EXPECT_EQ(to_line(*back), line);
  }
  EXPECT_FALSE(parse_supervisor_event(R"({"t":1,"event":"lunch"})"));
  EXPECT_FALSE(parse_supervisor_event(R"({"t":1,"event":"fau)"));
}

TEST(SupervisorEventTest, TheDetailGoesUnderTheNameThatIsDocumented) {
  SupervisorEvent event{.t = 1, .kind = SupervisorEventKind::kEnded};
  event.state = "failed";
  event.detail = "because";
  event.code = 3;
  EXPECT_EQ(to_line(event),
            R"({"event":"ended","exit_code":3,"reason":"because","state":"failed","t":1.0})");
  const auto back = parse_supervisor_event(to_line(event));
  EXPECT_EQ(back->detail, "because");
  EXPECT_EQ(back->code, 3);
}

}  // namespace
}  // namespace yard::jobs
