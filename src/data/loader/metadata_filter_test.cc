#include "loader/metadata_filter.h"

#include <gtest/gtest.h>

#include <string>

namespace yard::loader {
namespace {

constexpr std::string_view kMetadata =
    R"({"width": 640, "aspect": 1.5, "license": "cc0", "watermark": false, "tags": {"main": "cat",
        "all": []}, "score": null, "name": "a \"b\"", "count": 3})";

bool matches(std::string_view filter) {
  auto parsed = MetadataFilter::parse(filter);
  EXPECT_TRUE(parsed) << parsed.error().message;
  if (!parsed) return false;
  const auto matched = parsed->matches(kMetadata);
  EXPECT_TRUE(matched) << filter;
  return matched && *matched;
}

TEST(MetadataFilterTest, ComparesFieldsWithValues) {
  for (const char* filter :
       {"width >= 640", "width == 640", "width > 639.5", "aspect < 2", "aspect<=1.5",
        "license == \"cc0\"", "license < \"cc1\"", "tags.main == \"cat\"", "count == 3.0",
        "name == \"a \\\"b\\\"\"", "640 == width", "score == null", "none == null",
        "tags.none == null", "width.x == null", "tags.main != null", "width != \"640\"",
        "watermark == false", "width > -1"})
    EXPECT_TRUE(matches(filter)) << filter;
  for (const char* filter :
       {"width > 640", "width < 640", "license == \"cc1\"", "width == \"640\"", "score > 0",
        "score < 0", "none >= 0", "license > 5", "watermark == null", "tags == null"})
    EXPECT_FALSE(matches(filter)) << filter;
}

TEST(MetadataFilterTest, ValuesByThemselvesAreTrueOrNot) {
  for (const char* filter : {"width", "license", "tags", "true", "not watermark", "not score",
                             "not none", "not tags.all", "not 0", "not \"\""})
    EXPECT_TRUE(matches(filter)) << filter;
}

TEST(MetadataFilterTest, NotBindsCloserThanAndAndThatThanOr) {
  EXPECT_TRUE(matches("width or none and none"));
  EXPECT_FALSE(matches("(width or none) and none"));
  EXPECT_TRUE(matches("not none and width"));
  EXPECT_FALSE(matches("not (none or width)"));
  EXPECT_FALSE(matches("not not none"));
  EXPECT_TRUE(matches("width>=512 and aspect<2 and (license==\"cc0\" or not watermark)"));
}

TEST(MetadataFilterTest, WordsInsideNamesAreNames) {
  auto parsed = MetadataFilter::parse("order and nothing or android");
  ASSERT_TRUE(parsed);
  EXPECT_TRUE(*parsed->matches(R"({"order": 1, "nothing": 1})"));
  EXPECT_TRUE(*parsed->matches(R"({"android": 1})"));
  EXPECT_FALSE(*parsed->matches(R"({"order": 1})"));
}

TEST(MetadataFilterTest, WhatIsNoFilterIsRefusedWithItsPlace) {
  for (const auto& [filter, place] : {std::pair{"", "character 1"},
                                      {"width >", "character 8"},
                                      {"width width", "character 7"},
                                      {"(width", "character 7"},
                                      {"width)", "character 6"},
                                      {"and", "character 4"},
                                      {"\"open", "character 6"},
                                      {"width = 5", "character 7"},
                                      {"\"\\q\"", "character 1"},
                                      {"width == 5 == 6", "character 12"},
                                      {"width && aspect", "character 7"},
                                      {"$x", "character 1"}}) {
    const auto parsed = MetadataFilter::parse(filter);
    if (std::string_view(filter) == "and") {
      EXPECT_TRUE(parsed);  // a field of that name
      continue;
    }
    ASSERT_FALSE(parsed) << filter;
    EXPECT_EQ(parsed.error().code, Code::kInvalidArgument);
    EXPECT_NE(parsed.error().message.find(place), std::string::npos) << parsed.error().message;
  }
  const std::string deep = std::string(100'000, '(') + "x" + std::string(100'000, ')');
  EXPECT_FALSE(MetadataFilter::parse(deep));
  std::string nots;
  for (int i = 0; i < 100'000; ++i) nots += "not ";
  EXPECT_FALSE(MetadataFilter::parse(nots + "x"));
}

TEST(MetadataFilterTest, MetadataThatIsNoObjectIsCorrupt) {
  auto parsed = MetadataFilter::parse("width");
  ASSERT_TRUE(parsed);
  for (const char* metadata : {"", "{", "[1]", "5", "\xff"})
    EXPECT_EQ(parsed->matches(metadata).error().code, Code::kCorrupt) << metadata;
}

}  // namespace
}  // namespace yard::loader
