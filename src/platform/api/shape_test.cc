#include "api/shape.h"

#include <gtest/gtest.h>

namespace yard::api {
namespace {

std::string model_text(const std::string& shapes) {
  return R"({"service": "s", "target_prefix": "", "json_version": "", "query_version": "", "validation_code": "V",
             "operations": {"Do": {"in": "$In"}}, "shapes": )" +
         shapes + "}";
}

TEST(ModelTest, AShapeMayStandInItself) {
  const auto model =
      Model::parse(model_text(R"({"In": {"t": "structure", "m": {"Next": "$In"}}})"), "m");
  ASSERT_TRUE(model) << model.error().message;
  const Shape* input = (*model)->find("Do")->input;
  EXPECT_EQ(input->find("Next")->shape, input);
  EXPECT_EQ(input->find("Last"), nullptr);
  EXPECT_EQ((*model)->find("Undo"), nullptr);
}

TEST(ModelTest, ADocumentThatIsNotInOrderIsRefused) {
  for (const char* shapes : {R"({"In": {"t": "structure", "m": {"A": "$Gone"}}})",
                             R"({"In": {"t": "thing"}})", R"({"In": {"t": "list"}})",
                             R"({"In": {"t": "map", "k": "string"}})", R"({"Out": {}})", "{}"})
    EXPECT_EQ(Model::parse(model_text(shapes), "m").error().code, Code::kInvalidArgument) << shapes;
}

TEST(TextPatternTest, MatchesWholeTexts) {
  const TextPattern name("[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}");
  EXPECT_TRUE(name.matches("a--b"));
  EXPECT_FALSE(name.matches("a-"));
  EXPECT_FALSE(name.matches("a b"));
  EXPECT_FALSE(name.matches(""));
  EXPECT_TRUE(TextPattern("[\\p{L}\\p{Z}]+").matches("ä ö"));
  EXPECT_FALSE(TextPattern("[\\p{L}\\p{Z}]+").matches("a{"));
}

TEST(TextPatternTest, OneThatCannotBeReadIsToldAndRefusesNobody) {
  const TextPattern broken("[a");
  EXPECT_EQ(broken.check().error().code, Code::kInvalidArgument);
  EXPECT_TRUE(broken.matches("anything"));
}

}  // namespace
}  // namespace yard::api
