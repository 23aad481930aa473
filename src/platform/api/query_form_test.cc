#include "api/query_form.h"

#include <gtest/gtest.h>

#include "api/validate.h"

namespace yard::api {
namespace {

const Model& iam() {
  return Model::built_in("iam");
}

AwsResult<Json> read(const Shape& shape, std::string_view body) {
  YARD_ASSIGN(const auto form, parse_form(body));
  return json_of_form(shape, form);
}

std::unique_ptr<Model> sample_model() {
  auto model = Model::parse(R"({"service": "s", "target_prefix": "", "json_version": "",
    "query_version": "2012-11-05", "validation_code": "V", "operations": {"Do": {"in": "$In", "out": "$In"}}, "shapes": {
      "In": {"t": "structure", "req": [], "m": {
        "Count": "integer", "Size": "double", "Is": "boolean", "When": "timestamp",
        "Flat": {"t": "list", "of": "string", "flat": "Item"},
        "Attributes": {"t": "map", "k": "string", "v": "string", "flat": "Attribute",
                       "key_name": "Name", "value_name": "Value"},
        "Map": {"t": "map", "k": "string", "v": "integer"},
        "Points": {"t": "list", "of": {"t": "structure", "m": {"X": "double"}}}}}}})",
                            "sample");
  YARD_CHECK(model.has_value());
  return *std::move(model);
}

TEST(QueryFormTest, AListIsInTheOrderOfItsNumbers) {
  std::string body = "Action=SimulatePrincipalPolicy&PolicySourceArn=arn%3Aaws%3Aiam&";
  for (int i = 12; i >= 1; --i)
    body += "ActionNames.member." + std::to_string(i) + "=a+" + std::to_string(i) + "&";
  const auto json = read(*iam().find("SimulatePrincipalPolicy")->input, body);
  ASSERT_TRUE(json);
  EXPECT_EQ((*json)["PolicySourceArn"], "arn:aws:iam");
  ASSERT_EQ((*json)["ActionNames"].size(), 12u);
  EXPECT_EQ((*json)["ActionNames"][1], "a 2");
  EXPECT_EQ((*json)["ActionNames"][11], "a 12");
  EXPECT_FALSE(json->contains("Action"));
}

TEST(QueryFormTest, ScalarsMapsAndListsHaveTheTypesOfTheirShapes) {
  const auto model = sample_model();
  const auto json = read(*model->find("Do")->input,
                         "Count=3&Size=0.5&Is=true&When=2026-11-30T05:16:27Z&Item.1=a&Item.2=b&"
                         "Attribute.1.Name=n&Attribute.1.Value=v&Map.entry.1.key=k&"
                         "Map.entry.1.value=7&Points.member.1.X=1&Points.member.2.X=2.5");
  ASSERT_TRUE(json) << json.error().message;
  const auto checked = checked_input(*model->find("Do")->input, *json);
  ASSERT_TRUE(checked);
  EXPECT_EQ(*checked, (Json{{"Count", 3},
                            {"Size", 0.5},
                            {"Is", true},
                            {"When", 1796015787.0},
                            {"Flat", {"a", "b"}},
                            {"Attributes", {{"n", "v"}}},
                            {"Map", {{"k", 7}}},
                            {"Points", {{{"X", 1.0}}, {{"X", 2.5}}}}}));
}

TEST(QueryFormTest, WhatIsNoFormOrHasTheWrongTypeIsRefused) {
  const auto model = sample_model();
  const Shape& shape = *model->find("Do")->input;
  for (const char* body : {"Count=x", "Count=3x", "Count=1&Count=2", "Size=", "Is=yes", "Count=%zz",
                           "Map.entry.1.key=k", "a.b.c.d.e.f.g.h.i.j.k.l.m.n.o.p.q=1"})
    EXPECT_FALSE(read(shape, body)) << body;
  std::string many;
  for (int i = 0; i < 10'001; ++i) many += "a" + std::to_string(i) + "=1&";
  EXPECT_EQ(read(shape, many).error().code, "MalformedInput");
}

TEST(QueryXmlTest, TheAnswerIsInItsWrappersAndEscaped) {
  const auto model = sample_model();
  const std::string xml = xml_of_answer(*model, "Do",
                                        {{"When", 1796015787.0},
                                         {"Is", false},
                                         {"Flat", {"<a>", "b"}},
                                         {"Attributes", {{"n", "v"}}},
                                         {"Points", {{{"X", 1.5}}}},
                                         {"Unknown", 1}},
                                        "id-1");
  EXPECT_EQ(xml,
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
            "<DoResponse xmlns=\"https://s.amazonaws.com/doc/2012-11-05/\"><DoResult>"
            "<Attribute><Name>n</Name><Value>v</Value></Attribute>"
            "<Item>&lt;a&gt;</Item><Item>b</Item><Is>false</Is>"
            "<Points><member><X>1.5</X></member></Points>"
            "<When>2026-11-30T05:16:27.000Z</When></DoResult>"
            "<ResponseMetadata><RequestId>id-1</RequestId></ResponseMetadata></DoResponse>");
}

TEST(QueryXmlTest, AnErrorSaysWhoseFaultItIs) {
  const std::string ours = xml_of_error(&iam(), AwsError("ServiceFailure", "x", 500), "id");
  EXPECT_NE(ours.find("<Type>Receiver</Type><Code>ServiceFailure</Code>"), ours.npos);
  const std::string theirs = xml_of_error(nullptr, AwsError("InvalidAction", "a & b"), "id");
  EXPECT_NE(theirs.find("<ErrorResponse><Error><Type>Sender</Type>"), theirs.npos);
  EXPECT_NE(theirs.find("a &amp; b"), theirs.npos);
}

}  // namespace
}  // namespace yard::api
