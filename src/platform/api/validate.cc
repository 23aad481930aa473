#include "api/validate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "api/timestamp.h"

namespace yard::api {
namespace {

constexpr size_t kValueBytesTold = 256;

AwsError serialization_error(std::string message) {
  return AwsError("SerializationException", std::move(message));
}

std::string_view type_name(const Json& value) {
  switch (value.type()) {
    case Json::value_t::object:
      return "START_OBJECT";
    case Json::value_t::array:
      return "START_ARRAY";
    case Json::value_t::string:
      return "STRING_VALUE";
    case Json::value_t::boolean:
      return value.get<bool>() ? "TRUE_VALUE" : "FALSE_VALUE";
    case Json::value_t::null:
      return "NULL_VALUE";
    default:
      return "NUMBER_VALUE";
  }
}

std::string_view type_name(ShapeKind kind) {
  switch (kind) {
    case ShapeKind::kStructure:
      return "a structure";
    case ShapeKind::kList:
      return "a List";
    case ShapeKind::kMap:
      return "a Map";
    case ShapeKind::kString:
      return "a String";
    case ShapeKind::kInteger:
      return "an Integer";
    case ShapeKind::kLong:
      return "a Long";
    case ShapeKind::kFloat:
      return "a Float";
    case ShapeKind::kDouble:
      return "a Double";
    case ShapeKind::kBoolean:
      return "a Boolean";
    case ShapeKind::kTimestamp:
      return "a Timestamp";
    case ShapeKind::kBlob:
      return "a Blob";
  }
  YARD_UNREACHABLE();
}

// AWS counts what it calls characters; bytes that go on a character do not count.
size_t character_count(std::string_view text) {
  size_t count = 0;
  for (const char c : text) count += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return count;
}

std::string told(const Json& value) {
  std::string text = value.is_string() ? value.get<std::string>()
                                       : value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() <= kValueBytesTold) return text;
  size_t end = kValueBytesTold;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end) + "...";
}

std::string number_text(double value) {
  return value == std::floor(value) && std::abs(value) < 1e15 ? fmt::format("{:.0f}", value)
                                                              : fmt::format("{}", value);
}

std::string lower_first(std::string name) {
  if (!name.empty() && name[0] >= 'A' && name[0] <= 'Z') name[0] = char(name[0] + 32);
  return name;
}

void add_bounds(std::vector<std::string>& texts, const Shape& shape, std::string_view what) {
  if (shape.max)
    texts.push_back(
        fmt::format("Member must have {} less than or equal to {}", what, number_text(*shape.max)));
  if (shape.min)
    texts.push_back(fmt::format("Member must have {} greater than or equal to {}", what,
                                number_text(*shape.min)));
}

// All that a text has to keep; in this order AWS names them where one inside a list or map does
// not.
std::vector<std::string> constraints_of(const Shape& shape) {
  std::vector<std::string> texts;
  add_bounds(texts, shape, "length");
  if (shape.pattern)
    texts.push_back("Member must satisfy regular expression pattern: " + shape.pattern->source());
  if (!shape.values.empty())
    texts.push_back(
        fmt::format("Member must satisfy enum value set: [{}]", fmt::join(shape.values, ", ")));
  return texts;
}

// The bound that the measure passes, in words; empty: none.
std::string passed_bound(const Shape& shape, double measure, std::string_view what) {
  if (shape.max && measure > *shape.max)
    return fmt::format("Member must have {} less than or equal to {}", what,
                       number_text(*shape.max));
  if (shape.min && measure < *shape.min)
    return fmt::format("Member must have {} greater than or equal to {}", what,
                       number_text(*shape.min));
  return "";
}

// What is wrong with a text; a pattern is only asked of one that is short enough.
std::vector<std::string> problems_of_text(const Shape& shape, const std::string& text) {
  std::vector<std::string> problems;
  if (auto bound = passed_bound(shape, double(character_count(text)), "length"); !bound.empty())
    problems.push_back(std::move(bound));
  const bool is_too_long = shape.max && double(text.size()) > *shape.max * 4;
  if (shape.pattern && !is_too_long && !shape.pattern->matches(text))
    problems.push_back("Member must satisfy regular expression pattern: " +
                       shape.pattern->source());
  if (!shape.values.empty() &&
      std::find(shape.values.begin(), shape.values.end(), text) == shape.values.end())
    problems.push_back(
        fmt::format("Member must satisfy enum value set: [{}]", fmt::join(shape.values, ", ")));
  return problems;
}

class Checker {
 public:
  AwsResult<Json> check(const Shape& shape, const Json& value, const std::string& path) {
    switch (shape.kind) {
      case ShapeKind::kStructure:
        return check_structure(shape, value, path);
      case ShapeKind::kList:
        return check_list(shape, value, path);
      case ShapeKind::kMap:
        return check_map(shape, value, path);
      case ShapeKind::kString:
      case ShapeKind::kBlob:
        return check_text(shape, value, path);
      case ShapeKind::kBoolean:
        if (!value.is_boolean()) return wrong_type(shape, value);
        return value;
      case ShapeKind::kTimestamp:
        return check_timestamp(shape, value);
      default:
        return check_number(shape, value, path);
    }
  }

  AwsStatus outcome() const {
    if (problem_count_ == 0) return Ok{};
    return validation_error(fmt::format("{} validation error{} detected: {}", problem_count_,
                                        problem_count_ == 1 ? "" : "s",
                                        fmt::join(problems_, "; ")));
  }

 private:
  static AwsError wrong_type(const Shape& shape, const Json& value) {
    return serialization_error(
        fmt::format("{} can not be converted to {}", type_name(value), type_name(shape.kind)));
  }

  void add_problem(std::string_view value, const std::string& path, std::string_view constraint) {
    ++problem_count_;
    if (problems_.size() < kProblemsToldMax)
      problems_.push_back(fmt::format("Value {} at '{}' failed to satisfy constraint: {}", value,
                                      path, constraint));
  }
  void add_problem(const Json& value, const std::string& path, std::string_view constraint) {
    add_problem(std::string_view("'" + told(value) + "'"), path, constraint);
  }

  AwsResult<Json> check_structure(const Shape& shape, const Json& value, const std::string& path) {
    if (!value.is_object()) return wrong_type(shape, value);
    Json kept = Json::object();
    for (const Shape::Member& member : shape.members) {
      const std::string at = (path.empty() ? "" : path + ".") + lower_first(member.name);
      const auto found = value.find(member.name);
      if (found == value.end() || found->is_null()) {
        if (member.is_required)
          add_problem(std::string_view("null"), at, "Member must not be null");
        continue;
      }
      YARD_ASSIGN(kept[member.name], check(*member.shape, *found, at));
    }
    return kept;
  }

  AwsResult<Json> check_list(const Shape& shape, const Json& value, const std::string& path) {
    if (!value.is_array()) return wrong_type(shape, value);
    if (const auto bound = passed_bound(shape, double(value.size()), "length"); !bound.empty())
      add_problem(value, path, bound);
    Json kept = Json::array();
    const bool is_text = shape.element->kind == ShapeKind::kString;
    bool is_told = false;
    for (size_t i = 0; i < value.size(); ++i) {
      if (is_text && value[i].is_string()) {
        const bool is_wrong =
            !problems_of_text(*shape.element, value[i].get_ref<const std::string&>()).empty();
        if (is_wrong && !is_told)
          add_problem(value, path,
                      fmt::format("Member must satisfy constraint: [{}]",
                                  fmt::join(constraints_of(*shape.element), ", ")));
        is_told = is_told || is_wrong;
        kept.push_back(value[i]);
        continue;
      }
      if (value[i].is_null()) return wrong_type(*shape.element, value[i]);
      YARD_ASSIGN(Json element,
                  check(*shape.element, value[i], fmt::format("{}.{}.member", path, i + 1)));
      kept.push_back(std::move(element));
    }
    return kept;
  }

  AwsResult<Json> check_map(const Shape& shape, const Json& value, const std::string& path) {
    if (!value.is_object()) return wrong_type(shape, value);
    if (const auto bound = passed_bound(shape, double(value.size()), "length"); !bound.empty())
      add_problem(value, path, bound);
    Json kept = Json::object();
    bool key_told = false;
    bool value_told = false;
    for (const auto& [key, element] : value.items()) {
      if (element.is_null()) continue;
      if (!key_told && !problems_of_text(*shape.key, key).empty()) {
        key_told = true;
        add_problem(Json{{key, told(element)}}, path, inside("Map keys", *shape.key));
      }
      if (shape.value->kind != ShapeKind::kString) {
        YARD_ASSIGN(kept[key], check(*shape.value, element, path + "." + key + ".member"));
        continue;
      }
      if (!element.is_string()) return wrong_type(*shape.value, element);
      if (!value_told &&
          !problems_of_text(*shape.value, element.get_ref<const std::string&>()).empty()) {
        value_told = true;
        add_problem(Json{{key, told(element)}}, path, inside("Map value", *shape.value));
      }
      kept[key] = element;
    }
    return kept;
  }

  static std::string inside(std::string_view what, const Shape& shape) {
    return fmt::format("{} must satisfy constraint: [{}]", what,
                       fmt::join(constraints_of(shape), ", "));
  }

  AwsResult<Json> check_text(const Shape& shape, const Json& value, const std::string& path) {
    if (!value.is_string()) return wrong_type(shape, value);
    for (const std::string& problem : problems_of_text(shape, value.get_ref<const std::string&>()))
      add_problem(value, path, problem);
    return value;
  }

  AwsResult<Json> check_number(const Shape& shape, const Json& value, const std::string& path) {
    if (!value.is_number()) return wrong_type(shape, value);
    const double number = value.get<double>();
    if (!std::isfinite(number)) return wrong_type(shape, value);
    if (const auto bound = passed_bound(shape, number, "value"); !bound.empty())
      add_problem(value, path, bound);
    const bool is_whole = shape.kind == ShapeKind::kInteger || shape.kind == ShapeKind::kLong;
    if (!is_whole || value.is_number_integer()) return value;
    // 2^53: beyond it a double may not be what was sent.
    if (number != std::floor(number) || std::abs(number) > 9007199254740992.0)
      return wrong_type(shape, value);
    return Json(static_cast<int64_t>(number));
  }

  static AwsResult<Json> check_timestamp(const Shape& shape, const Json& value) {
    if (value.is_number() && std::isfinite(value.get<double>())) return value;
    if (value.is_string())
      if (const auto seconds = parse_timestamp(value.get_ref<const std::string&>()))
        return Json(*seconds);
    return wrong_type(shape, value);
  }

  size_t problem_count_ = 0;
  std::vector<std::string> problems_;
};

// Counted before parsing, for the parser has no limit and what walks its result needs stack.
bool is_nested_too_deep(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      if (++depth > kJsonDepthMax) return true;
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return false;
}

}  // namespace

AwsResult<Json> checked_input(const Shape& shape, const Json& input) {
  Checker checker;
  YARD_ASSIGN(Json kept, checker.check(shape, input, ""));
  YARD_TRY(checker.outcome());
  return kept;
}

AwsResult<Json> parse_request_json(std::string_view text) {
  if (text.empty()) return Json(Json::object());
  if (is_nested_too_deep(text)) return serialization_error("the request is nested too deep");
  auto parsed = parse_json(text, "request");
  if (!parsed) return serialization_error(std::move(parsed).error().message);
  if (!parsed->is_object()) return serialization_error("Start of structure or map expected");
  return *std::move(parsed);
}

}  // namespace yard::api
