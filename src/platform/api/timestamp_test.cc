#include "api/timestamp.h"

#include <gtest/gtest.h>

namespace yard::api {
namespace {

TEST(TimestampTest, ReadsTheFormsThatClientsSend) {
  EXPECT_EQ(parse_timestamp("2026-11-30T05:16:27Z"), 1796015787);
  EXPECT_EQ(parse_timestamp("2026-11-30T05:16:27.25Z"), 1796015787.25);
  EXPECT_EQ(parse_timestamp("2026-11-30T06:16:27+01:00"), 1796015787);
  EXPECT_EQ(parse_timestamp("2026-11-30T00:16:27-0500"), 1796015787);
  EXPECT_EQ(parse_timestamp("2026-11-30"), 1795996800);
  EXPECT_EQ(parse_timestamp("1796015787.5"), 1796015787.5);
}

TEST(TimestampTest, RefusesWhatIsNoTime) {
  for (const char* text : {"", "now", "2026-13-01T00:00:00Z", "2026-02-30", "2026-11-30T25:00:00Z",
                           "2026-11-30T05:16Z", "2026-11-30T05:16:27X", "2026-11-30T05:16:27Z ",
                           "nan", "inf", "-001-01-01"})
    EXPECT_FALSE(parse_timestamp(text)) << text;
}

TEST(TimestampTest, WritesWhatItReads) {
  EXPECT_EQ(format_timestamp(1796015787.25), "2026-11-30T05:16:27.250Z");
  EXPECT_EQ(parse_timestamp(format_timestamp(1796015787.125)), 1796015787.125);
  EXPECT_EQ(rounded_to_ms(1.23456), 1.235);
}

}  // namespace
}  // namespace yard::api
