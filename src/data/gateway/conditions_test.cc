#include "gateway/conditions.h"

#include <gtest/gtest.h>

#include <tuple>

namespace yard::gateway {
namespace {

const auto kModified = *parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT");
const ObjectVersion kVersion{"abc", kModified};
constexpr const char* kBefore = "Sun, 06 Nov 1994 08:49:36 GMT";
constexpr const char* kSame = "Sun, 06 Nov 1994 08:49:37 GMT";
constexpr const char* kAfter = "Sun, 06 Nov 1994 08:49:38 GMT";

int status_of(const S3Status& status) {
  return status ? 200 : status.error().http_status;
}

int read_status(const Headers& headers) {
  return status_of(check_read_conditions(headers, kVersion));
}

TEST(ConditionsTest, EachConditionOfAReadHoldsOrFails) {
  EXPECT_EQ(read_status({}), 200);
  for (const auto& [name, value, status] :
       std::initializer_list<std::tuple<const char*, const char*, int>>{
           {"If-Match", "\"abc\"", 200},
           {"If-Match", "abc", 200},
           {"If-Match", "\"x\", W/\"abc\"", 200},
           {"If-Match", "*", 200},
           {"If-Match", "\"ab\"", 412},
           {"If-Match", "", 412},
           {"If-None-Match", "\"abc\"", 304},
           {"If-None-Match", "*", 304},
           {"If-None-Match", "\"x\"", 200},
           {"If-Modified-Since", kBefore, 200},
           {"If-Modified-Since", kSame, 304},
           {"If-Modified-Since", "yesterday", 200},
           {"If-Unmodified-Since", kSame, 200},
           {"If-Unmodified-Since", kBefore, 412},
           {"If-Unmodified-Since", "tomorrow", 200}})
    EXPECT_EQ(read_status({{name, value}}), status) << name << ": " << value;
}

TEST(ConditionsTest, TagsGoBeforeDates) {
  EXPECT_EQ(read_status({{"If-Match", "abc"}, {"If-Unmodified-Since", kBefore}}), 200);
  EXPECT_EQ(read_status({{"If-None-Match", "x"}, {"If-Modified-Since", kAfter}}), 200);
  EXPECT_EQ(read_status({{"If-Match", "x"}, {"If-None-Match", "abc"}}), 412);
}

TEST(ConditionsTest, AWriteMayAskForNothingOrForThisVersion) {
  const auto status = [](const Headers& headers, const ObjectVersion* existing) {
    return status_of(check_write_conditions(headers, existing));
  };
  EXPECT_EQ(status({{"If-None-Match", "*"}}, nullptr), 200);
  EXPECT_EQ(status({{"If-None-Match", "*"}}, &kVersion), 412);
  EXPECT_EQ(status({{"If-Match", "\"abc\""}}, &kVersion), 200);
  EXPECT_EQ(status({{"If-Match", "\"x\""}}, &kVersion), 412);
  EXPECT_EQ(status({{"If-Match", "\"abc\""}}, nullptr), 404);
  EXPECT_EQ(status({}, nullptr), 200);
}

TEST(RangeTest, ARangeIsCutAtTheEndRefusedBehindItOrIgnored) {
  using Range = std::optional<ByteRange>;
  const auto range = [](const char* header, uint64_t size = 10) {
    return *parse_range(header, size);
  };
  EXPECT_EQ(range("bytes=0-0"), (Range{{0, 1}}));
  EXPECT_EQ(range("bytes=3-"), (Range{{3, 7}}));
  EXPECT_EQ(range("bytes=3-99"), (Range{{3, 7}}));
  EXPECT_EQ(range("bytes=-3"), (Range{{7, 3}}));
  EXPECT_EQ(range("bytes=-99"), (Range{{0, 10}}));
  EXPECT_EQ(range("bytes=9-18446744073709551615"), (Range{{9, 1}}));
  for (const char* ignored :
       {"", "bytes", "bytes=", "bytes=-", "bytes=5-4", "bytes=a-b", "bytes=1-2,3-4", "items=0-1",
        "bytes=0-18446744073709551616", "bytes=+1-2", "bytes= - 3"})
    EXPECT_EQ(range(ignored), std::nullopt) << ignored;
  for (const char* header : {"bytes=10-", "bytes=10-11", "bytes=-0"}) {
    const auto refused = parse_range(header, 10);
    ASSERT_FALSE(refused) << header;
    EXPECT_EQ(refused.error().http_status, 416);
  }
  EXPECT_FALSE(parse_range("bytes=0-0", 0));
  EXPECT_FALSE(parse_range("bytes=-1", 0));
}

TEST(RangeTest, ARangeToCopyMustLieInTheObject) {
  EXPECT_EQ(*parse_copy_range("bytes=2-9", 10), (ByteRange{2, 8}));
  for (const char* header : {"bytes=2-10", "bytes=2-", "bytes=-2", "2-3", "bytes=3-2", ""})
    EXPECT_EQ(parse_copy_range(header, 10).has_value(), false) << header;
}

}  // namespace
}  // namespace yard::gateway
