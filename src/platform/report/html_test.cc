#include "report/html.h"

#include <gtest/gtest.h>

#include <limits>

namespace yard::report {
namespace {

std::string uri_of(std::string_view text) {
  return png_data_uri(std::as_bytes(std::span(text)));
}

TEST(HtmlTest, MarkupInTextIsShownNotObeyed) {
  EXPECT_EQ(escape_html("<script>alert('x')</script> & \"y\""),
            "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt; &amp; &quot;y&quot;");
}

TEST(HtmlTest, WellFormedUtf8Stays) {
  const std::string text = "grüße 火 \xF0\x9F\xA6\x8A\tend\n";
  EXPECT_EQ(escape_html(text), text);
}

TEST(HtmlTest, BytesThatAreNotUtf8AndControlCharactersAreReplaced) {
  const std::string r = "\xEF\xBF\xBD";
  EXPECT_EQ(escape_html("a\xFFz"), "a" + r + "z");
  EXPECT_EQ(escape_html("\xC3"), r);                          // cut
  EXPECT_EQ(escape_html("\xC0\xAF"), r + r);                  // overlong
  EXPECT_EQ(escape_html("\xED\xA0\x80"), r + r + r);          // surrogate
  EXPECT_EQ(escape_html("\xF4\x90\x80\x80"), r + r + r + r);  // past U+10FFFF
  EXPECT_EQ(escape_html(std::string_view("a\0b\x1B\x7F", 5)), "a" + r + "b" + r + r);
}

// RFC 4648, section 10.
TEST(HtmlTest, Base64EqualsTheVectorsOfTheRfc) {
  const std::string head = "data:image/png;base64,";
  EXPECT_EQ(uri_of(""), head);
  EXPECT_EQ(uri_of("f"), head + "Zg==");
  EXPECT_EQ(uri_of("fo"), head + "Zm8=");
  EXPECT_EQ(uri_of("foo"), head + "Zm9v");
  EXPECT_EQ(uri_of("foobar"), head + "Zm9vYmFy");
  EXPECT_EQ(uri_of("\xFF\xFE\xFD"), head + "//79");
}

TEST(HtmlTest, NumbersKeepThreeDigits) {
  EXPECT_EQ(format_number(0), "0");
  EXPECT_EQ(format_number(0.042123), "0.0421");
  EXPECT_EQ(format_number(12.345), "12.3");
  EXPECT_EQ(format_number(1284.4), "1284");
  EXPECT_EQ(format_number(-1.5), "-1.50");
  EXPECT_EQ(format_number(2e-5), "2.00e-05");
  EXPECT_EQ(format_number(std::numeric_limits<double>::quiet_NaN()), "–");
}

TEST(HtmlTest, SecondsReadAsPeopleSayThem) {
  EXPECT_EQ(format_seconds(0.384), "0.38 s");
  EXPECT_EQ(format_seconds(42), "42 s");
  EXPECT_EQ(format_seconds(59.7), "1 min 00 s");
  EXPECT_EQ(format_seconds(312), "5 min 12 s");
  EXPECT_EQ(format_seconds(11040), "3 h 04 min");
  EXPECT_EQ(format_seconds(std::numeric_limits<double>::infinity()), "–");
  EXPECT_EQ(format_percent(0.1234), "12.3 %");
}

}  // namespace
}  // namespace yard::report
