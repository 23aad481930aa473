#include "base/json.h"

#include <gtest/gtest.h>

namespace yard {
namespace {

using std::string_literals::operator""s;

Json parsed(std::string_view text) {
  auto json = parse_json(text, "test");
  EXPECT_TRUE(json);
  return json ? *std::move(json) : Json();
}

template <typename T>
std::string failure(std::string_view text, std::string_view key) {
  const auto field = json_field<T>(parsed(text), key, "config.json");
  if (field.has_value()) return "no failure";
  EXPECT_EQ(field.error().code, Code::kInvalidArgument);
  return field.error().message;
}

TEST(ParseJson, ErrorsGiveDocumentLineAndColumn) {
  const auto failed = parse_json("{\n  \"a\": 1,\n  \"b\": x\n}", "config.json");
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, Code::kInvalidArgument);
  EXPECT_TRUE(failed.error().message.starts_with("config.json: line 3, column 8: "))
      << failed.error().message;
  EXPECT_EQ(failed.error().message.find("json.exception"), std::string::npos);
}

TEST(ParseJson, RefusesWhatIsNotJson) {
  for (const auto text : {"", "{", "[1,]", "{\"a\":1} x", "\"\xff\"", "nul"})
    EXPECT_FALSE(parse_json(text, "x")) << text;
}

TEST(ParseJson, SurvivesDeepNesting) {
  EXPECT_FALSE(parse_json(std::string(1'000'000, '['), "x"));
}

TEST(JsonField, ReadsEveryKind) {
  const Json json = parsed(R"({"b":true,"i":-3,"d":1.5,"s":"x","l":[1,2],"w":["a"],"whole":2})");
  EXPECT_EQ(*json_field<bool>(json, "b", "x"), true);
  EXPECT_EQ(*json_field<int>(json, "i", "x"), -3);
  EXPECT_EQ(*json_field<double>(json, "d", "x"), 1.5);
  EXPECT_EQ(*json_field<double>(json, "whole", "x"), 2.0);
  EXPECT_EQ(*json_field<std::string>(json, "s", "x"), "x");
  EXPECT_EQ(*json_field<std::vector<int>>(json, "l", "x"), (std::vector<int>{1, 2}));
  EXPECT_EQ(*json_field<std::vector<std::string>>(json, "w", "x"), std::vector{"a"s});
}

TEST(JsonField, NamesDocumentKeyAndWhatItFound) {
  EXPECT_EQ(failure<int>("{}", "steps"), "config.json: 'steps' is missing");
  EXPECT_EQ(failure<int>(R"({"steps":"ten"})", "steps"),
            "config.json: 'steps' is \"ten\", not a whole number");
  EXPECT_EQ(failure<int>("[1]", "steps"), "config.json: not an object");
}

TEST(JsonField, RefusesOtherTypesInsteadOfConverting) {
  EXPECT_NE(failure<int>(R"({"a":1.5})", "a"), "no failure");
  EXPECT_NE(failure<int>(R"({"a":true})", "a"), "no failure");
  EXPECT_NE(failure<bool>(R"({"a":1})", "a"), "no failure");
  EXPECT_NE(failure<std::string>(R"({"a":null})", "a"), "no failure");
  EXPECT_NE(failure<std::vector<int>>(R"({"a":[1,2.5]})", "a"), "no failure");
  EXPECT_NE(failure<std::vector<int>>(R"({"a":3})", "a"), "no failure");
}

TEST(JsonField, RefusesNumbersThatDoNotFit) {
  EXPECT_NE(failure<uint64_t>(R"({"a":-1})", "a"), "no failure");
  EXPECT_NE(failure<int32_t>(R"({"a":3000000000})", "a"), "no failure");
  EXPECT_NE(failure<int64_t>(R"({"a":9223372036854775808})", "a"), "no failure");
  EXPECT_NE(failure<std::vector<uint8_t>>(R"({"a":[256]})", "a"), "no failure");
  EXPECT_EQ(*json_field<uint64_t>(parsed(R"({"a":18446744073709551615})"), "a", "x"), UINT64_MAX);
}

TEST(JsonFieldOr, FallsBackOnlyWhenAbsentOrNull) {
  const Json json = parsed(R"({"n":null,"s":"x"})");
  EXPECT_EQ(*json_field_or<int>(json, "absent", 4, "x"), 4);
  EXPECT_EQ(*json_field_or<int>(json, "n", 4, "x"), 4);
  EXPECT_FALSE(json_field_or<int>(json, "s", 4, "x"));
  EXPECT_FALSE(json_field_or<int>(Json::array(), "s", 4, "x"));
}

TEST(RefuseUnknownKeys, NamesTheNearestKnownKey) {
  const Json json = parsed(R"({"leraning_rate":1})");
  const auto refused = refuse_unknown_keys(json, {"batch", "learning_rate"}, "recipe");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message,
            "recipe: unknown key 'leraning_rate', did you mean 'learning_rate'?");
  EXPECT_TRUE(refuse_unknown_keys(json, {"leraning_rate"}, "recipe"));
  EXPECT_FALSE(refuse_unknown_keys(Json::array(), {}, "recipe"));
}

}  // namespace
}  // namespace yard
