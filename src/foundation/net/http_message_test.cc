#include "net/http_message.h"

#include <gtest/gtest.h>

#include <vector>

namespace yard {
namespace {

using std::chrono::system_clock;

TEST(HttpMessage, HeaderNamesAreFoundWithoutRegardToCase) {
  const Headers headers{{"Content-Type", "text/plain"}, {"X-A", "1"}, {"x-a", "2"}};
  EXPECT_EQ(headers.find("content-TYPE"), "text/plain");
  EXPECT_EQ(headers.find("X-a"), "1");
  EXPECT_EQ(headers.joined("X-A"), "1, 2");
  EXPECT_EQ(headers.joined("X-B"), "");
  EXPECT_FALSE(headers.contains("Content"));
  EXPECT_EQ(headers.value_or("none", "otherwise"), "otherwise");
}

TEST(HttpMessage, SetTakesThePlaceOfAllOfThatName) {
  Headers headers{{"A", "1"}, {"B", "2"}, {"a", "3"}, {"C", "4"}};
  headers.set("a", "5");
  ASSERT_EQ(headers.size(), 3U);
  EXPECT_EQ(headers[0].value, "5");
  EXPECT_EQ(headers[1].name, "B");
  EXPECT_EQ(headers[2].name, "C");
  headers.set("D", "6");
  headers.remove("b");
  ASSERT_EQ(headers.size(), 3U);
  EXPECT_EQ(headers[2].value, "6");
}

TEST(HttpMessage, AHeaderMayBeCopiedFromItsOwnList) {
  Headers headers{{"A", "value that is longer than any small string buffer"}};
  for (int i = 0; i < 100; ++i) headers.add(headers[0].name, headers[0].value);
  for (const auto field : headers) {
    EXPECT_EQ(field.name, "A");
    EXPECT_EQ(field.value, "value that is longer than any small string buffer");
  }
  headers.set(headers[0].name, headers[0].value);
  ASSERT_EQ(headers.size(), 1U);
  EXPECT_EQ(headers[0].name, "A");
}

TEST(HttpMessage, WhatCouldSplitAMessageIsNeitherNameNorValue) {
  EXPECT_TRUE(is_header_name("X-Amz-Meta-a"));
  for (const std::string_view name : {"", "A B", "A:", "A\r\n", "\xc3\xa4"})
    EXPECT_FALSE(is_header_name(name)) << name;
  EXPECT_TRUE(is_header_value(""));
  EXPECT_TRUE(is_header_value("a: b; c=\"d\" \xc3\xa4"));
  for (const std::string_view value : {std::string_view("a\r\nB: c"), std::string_view("a\n"),
                                       std::string_view("a\r"), std::string_view("a\0b", 3)})
    EXPECT_FALSE(is_header_value(value)) << value;
}

TEST(HttpMessage, DatesGoBothWays) {
  const auto time = system_clock::from_time_t(784111777);
  EXPECT_EQ(format_http_date(time), "Sun, 06 Nov 1994 08:49:37 GMT");
  const auto parsed = parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT");
  ASSERT_TRUE(parsed);
  EXPECT_EQ(*parsed, time);
  const auto leap = system_clock::from_time_t(1709164800);
  EXPECT_EQ(*parse_http_date(format_http_date(leap)), leap);
}

TEST(HttpMessage, WhatIsNoDateIsRefused) {
  for (const char* text : {"", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994",
                           "Sun, 06 Nov 1994 08:49:37 UTC", "Sun, 00 Nov 1994 08:49:37 GMT",
                           "Sun, 06 Noc 1994 08:49:37 GMT", "Sun, 06 Nov 1994 24:49:37 GMT",
                           "Sun, 06 Nov 1994 08:60:37 GMT", "Xun, 06 Nov 1994 08:49:37 GMT",
                           "Sun, 06 Nov 19x4 08:49:37 GMT", "Sun, 06 Nov 1994 08:49:37 GMT ",
                           "Sun, 06 Nov 3094 08:49:37 GMT"}) {
    const auto parsed = parse_http_date(text);
    ASSERT_FALSE(parsed) << text;
    EXPECT_EQ(parsed.error().code, Code::kInvalidArgument);
  }
}

TEST(HttpMessage, StatusNamesAreThoseOfTheStandard) {
  EXPECT_EQ(status_reason(200), "OK");
  EXPECT_EQ(status_reason(431), "Request Header Fields Too Large");
  EXPECT_EQ(status_reason(299), "");
}

}  // namespace
}  // namespace yard
