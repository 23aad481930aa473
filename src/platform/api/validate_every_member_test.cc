// Every member of every request: missing where it is required, over each of its limits. The cases
// are made from the shapes themselves, so that none is left out.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "api/validate.h"

namespace yard::api {
namespace {

constexpr int kDepthMax = 8;  // shapes may stand inside themselves

struct Case {
  Json input;
  std::string path;
  std::string words;  // that its error has to hold
};

using Wrap = std::function<Json(Json)>;  // puts a value at its place in a request

std::string lower_first(std::string name) {
  name[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(name[0])));
  return name;
}

std::string number(double value) {
  return std::to_string(static_cast<int64_t>(value));
}

class CaseMaker {
 public:
  std::vector<Case> cases;

  void add(const Shape& shape, const std::string& path, const Wrap& wrap, int depth) {
    if (depth > kDepthMax) return;
    switch (shape.kind) {
      case ShapeKind::kStructure:
        return add_structure(shape, path, wrap, depth);
      case ShapeKind::kList:
        return add_list(shape, path, wrap, depth);
      case ShapeKind::kMap:
        return add_map(shape, path, wrap);
      case ShapeKind::kString:
        return add_text(shape, path, wrap);
      case ShapeKind::kInteger:
      case ShapeKind::kLong:
        return add_number(shape, path, wrap);
      default:
        return;
    }
  }

 private:
  void add_structure(const Shape& shape, const std::string& path, const Wrap& wrap, int depth) {
    for (const Shape::Member& member : shape.members) {
      const std::string at = (path.empty() ? "" : path + ".") + lower_first(member.name);
      if (member.is_required)
        cases.push_back({wrap(Json::object()), at, "Member must not be null"});
      add(
          *member.shape, at,
          [&](Json value) {
            return wrap(Json{{member.name, value}});
          },
          depth + 1);
    }
  }
  void add_list(const Shape& shape, const std::string& path, const Wrap& wrap, int depth) {
    if (shape.max && *shape.max <= 20'000)
      cases.push_back({wrap(Json::array_t(size_t(*shape.max) + 1, sample(*shape.element))), path,
                       "length less than or equal to " + number(*shape.max)});
    if (shape.min && *shape.min > 0)
      cases.push_back(
          {wrap(Json::array()), path, "length greater than or equal to " + number(*shape.min)});
    if (shape.element->kind != ShapeKind::kString)
      add(
          *shape.element, path + ".1.member",
          [&](Json value) { return wrap(Json::array({std::move(value)})); }, depth + 1);
    else if (shape.element->max)
      cases.push_back({wrap(Json::array({std::string(size_t(*shape.element->max) + 1, 'a')})), path,
                       "Member must satisfy constraint"});
  }
  void add_map(const Shape& shape, const std::string& path, const Wrap& wrap) {
    if (shape.max) {
      Json many = Json::object();
      for (int i = 0; i <= *shape.max; ++i) many["k" + std::to_string(i)] = sample(*shape.value);
      cases.push_back({wrap(many), path, "length less than or equal to " + number(*shape.max)});
    }
    if (shape.key->max)
      cases.push_back(
          {wrap(Json{{std::string(size_t(*shape.key->max) + 1, 'a'), sample(*shape.value)}}), path,
           "Map keys must satisfy constraint"});
    if (shape.value->kind == ShapeKind::kString && shape.value->max)
      cases.push_back({wrap(Json{{"k", std::string(size_t(*shape.value->max) + 1, 'a')}}), path,
                       "Map value must satisfy constraint"});
  }
  void add_text(const Shape& shape, const std::string& path, const Wrap& wrap) {
    if (shape.max && *shape.max <= 100'000)
      cases.push_back({wrap(std::string(size_t(*shape.max) + 1, 'a')), path,
                       "length less than or equal to " + number(*shape.max)});
    if (shape.min && *shape.min > 0)
      cases.push_back({wrap(std::string(size_t(*shape.min) - 1, 'a')), path,
                       "length greater than or equal to " + number(*shape.min)});
    if (!shape.values.empty()) cases.push_back({wrap("no such value"), path, "enum value set"});
  }
  void add_number(const Shape& shape, const std::string& path, const Wrap& wrap) {
    if (shape.max && *shape.max < 9e15)
      cases.push_back({wrap(int64_t(*shape.max) + 1), path,
                       "value less than or equal to " + number(*shape.max)});
    if (shape.min)
      cases.push_back({wrap(int64_t(*shape.min) - 1), path,
                       "value greater than or equal to " + number(*shape.min)});
  }
  // Of the right type; other limits it may break.
  static Json sample(const Shape& shape) {
    switch (shape.kind) {
      case ShapeKind::kStructure:
        return Json::object();
      case ShapeKind::kList:
        return Json::array();
      case ShapeKind::kMap:
        return Json::object();
      case ShapeKind::kString:
      case ShapeKind::kBlob:
        return "a";
      case ShapeKind::kBoolean:
        return true;
      default:
        return 1;
    }
  }
};

class EveryMemberTest : public testing::TestWithParam<const char*> {};

TEST_P(EveryMemberTest, MissingOrOverItsLimitIsNamed) {
  const Model& model = Model::built_in(GetParam());
  size_t case_count = 0;
  for (const std::string_view operation : model.operations()) {
    const Shape* shape = model.find(operation)->input;
    if (shape == nullptr) continue;
    CaseMaker maker;
    maker.add(
        *shape, "", [](Json value) { return value; }, 0);
    case_count += maker.cases.size();
    for (const Case& each : maker.cases) {
      const auto kept = checked_input(*shape, each.input);
      ASSERT_FALSE(kept) << operation << ": " << each.path << " " << each.words;
      EXPECT_EQ(kept.error().code, "ValidationException") << operation << " " << each.path;
      const std::string& message = kept.error().message;
      const std::string where = "at '" + each.path + "' failed to satisfy constraint: ";
      // Many problems of one list are told up to a number; then its own may not be among them.
      const bool is_cut = std::stoul(message) > kProblemsToldMax;
      const bool is_told =
          message.find(where) != std::string::npos && message.find(each.words) != std::string::npos;
      EXPECT_TRUE(is_told || is_cut)
          << operation << ": " << each.path << ": " << each.words << " is not in\n"
          << message.substr(0, 600);
    }
  }
  EXPECT_GT(case_count, 0u);
  RecordProperty("cases", static_cast<int>(case_count));
}

INSTANTIATE_TEST_SUITE_P(Models, EveryMemberTest,
                         testing::Values("sagemaker", "logs", "monitoring", "sqs", "trainyard"));

}  // namespace
}  // namespace yard::api
