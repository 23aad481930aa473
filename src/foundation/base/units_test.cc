#include "base/units.h"

#include <gtest/gtest.h>

namespace yard {
namespace {

using namespace std::chrono_literals;

TEST(ParseSize, KnowsBinaryAndDecimalUnits) {
  const std::pair<std::string_view, uint64_t> cases[] = {
      {"0", 0},
      {"17", 17},
      {"64k", 65'536},
      {"64KiB", 65'536},
      {"64kB", 64'000},
      {"512MiB", 512u << 20},
      {"1GiB", 1u << 30},
      {"1GB", 1'000'000'000},
      {"2TiB", uint64_t{2} << 40},
      {"1.5 KiB", 1'536},
      {"7 B", 7},
      {"9007199254740993", 9'007'199'254'740'993},  // 2^53 + 1, which no double holds
  };
  for (const auto& [text, size_bytes] : cases) {
    const auto parsed = parse_size_bytes(text);
    ASSERT_TRUE(parsed) << text;
    EXPECT_EQ(*parsed, size_bytes) << text;
  }
}

TEST(ParseSize, RefusesEverythingElse) {
  for (const auto text : {"", "-1", "+1", "k", "1X", "1 Gi B", "1e9", "inf", "nan", "0x10", " 1",
                          "1 ", "8EiB", "9223372036854775808", "9999999999TiB", "1..5k"}) {
    const auto parsed = parse_size_bytes(text);
    ASSERT_FALSE(parsed) << text;
    EXPECT_EQ(parsed.error().code, Code::kInvalidArgument);
  }
}

TEST(FormatSize, UsesTheLargestUnitThatFits) {
  EXPECT_EQ(format_size_bytes(0), "0 B");
  EXPECT_EQ(format_size_bytes(1023), "1023 B");
  EXPECT_EQ(format_size_bytes(1536), "1.5 KiB");
  EXPECT_EQ(format_size_bytes((1u << 20) - 1), "1.0 MiB");
  EXPECT_EQ(format_size_bytes(uint64_t{3} << 29), "1.5 GiB");
  EXPECT_EQ(format_size_bytes(UINT64_MAX), "16.0 EiB");
}

TEST(ParseDuration, AddsItsParts) {
  const std::pair<std::string_view, std::chrono::milliseconds> cases[] = {
      {"90s", 90s},    {"2m", 2min}, {"1h30m", 90min}, {"250ms", 250ms},
      {"1.5h", 90min}, {"1d", 24h},  {"0s", 0ms},      {"1m0.5s", 60'500ms},
  };
  for (const auto& [text, duration] : cases) {
    const auto parsed = parse_duration(text);
    ASSERT_TRUE(parsed) << text;
    EXPECT_EQ(*parsed, duration) << text;
  }
}

TEST(ParseDuration, RefusesEverythingElse) {
  for (const auto text : {"", "5", "-5s", "s", "5x", "1h 30m", "infs", "999999999d", "1h30"})
    EXPECT_FALSE(parse_duration(text)) << text;
}

TEST(FormatDuration, ShowsWhatMatters) {
  EXPECT_EQ(format_duration(250ms), "250ms");
  EXPECT_EQ(format_duration(4'200ms), "4.2s");
  EXPECT_EQ(format_duration(59'990ms), "1m00s");
  EXPECT_EQ(format_duration(200s), "3m20s");
  EXPECT_EQ(format_duration(62min), "1h02m");
  EXPECT_EQ(format_duration(-1500ms), "-1.5s");
}

}  // namespace
}  // namespace yard
