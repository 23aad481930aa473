#include "loop/yaml_document.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <charconv>
#include <cmath>
#include <limits>
#include <optional>

#include "base/nearest_name.h"

namespace yard::loop {
namespace {

constexpr int kDepthMax = 32;
constexpr int kValueCountMax = 100'000;

Error refused(const YAML::Mark& mark, std::string_view name, std::string_view why) {
  if (mark.is_null()) return {Code::kInvalidArgument, fmt::format("{}: {}", name, why)};
  return {Code::kInvalidArgument, fmt::format("{}:{}: {}", name, mark.line + 1, why)};
}

std::optional<Json> integer_of(std::string_view text) {
  int base = 10;
  std::string_view digits = text;
  if (digits.starts_with('+')) digits.remove_prefix(1);
  if (digits.starts_with("0x")) {
    base = 16;
    digits.remove_prefix(2);
  }
  int64_t value = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
  if (error == std::errc{} && end == digits.data() + digits.size()) return Json(value);
  uint64_t large = 0;  // seeds may use all 64 bits
  const auto [large_end, large_error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), large, base);
  if (large_error == std::errc{} && large_end == digits.data() + digits.size()) return Json(large);
  return std::nullopt;
}

std::optional<Json> number_of(std::string_view text) {
  if (text.empty() || text.find_first_not_of("0123456789+-.eE") != std::string_view::npos)
    return std::nullopt;
  if (text.starts_with('+')) text.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return Json(value);
}

Json scalar_of(const YAML::Node& node) {
  const std::string& text = node.Scalar();
  if (node.Tag() == "!") return text;  // quoted
  if (text.empty() || text == "~" || text == "null") return nullptr;
  if (text == "true" || text == "false") return text == "true";
  if (auto integer = integer_of(text)) return *integer;
  if (auto number = number_of(text)) return *number;
  return text;
}

std::string joined(const std::string& path, std::string_view key) {
  return path.empty() ? std::string(key) : fmt::format("{}.{}", path, key);
}

class Converter {
 public:
  explicit Converter(YamlDocument& document) : document_(document) {}

  Result<Json> value_of(const YAML::Node& node, const std::string& path, int depth) {
    if (depth > kDepthMax || ++value_count_ > kValueCountMax)
      return refused(node.Mark(), document_.name, "too large for a configuration");
    document_.lines.emplace(path, node.Mark().line + 1);
    if (node.IsMap()) return map_of(node, path, depth);
    if (node.IsSequence()) return list_of(node, path, depth);
    return node.IsScalar() ? scalar_of(node) : Json(nullptr);
  }

 private:
  Result<Json> map_of(const YAML::Node& node, const std::string& path, int depth) {
    Json map = Json::object();
    for (const auto& item : node) {
      if (!item.first.IsScalar())
        return refused(item.first.Mark(), document_.name, "a key must be a word");
      const std::string& key = item.first.Scalar();
      if (map.contains(key))
        return refused(item.first.Mark(), document_.name,
                       fmt::format("key '{}' is given twice", key));
      const std::string inner = joined(path, key);
      YARD_ASSIGN(map[key], value_of(item.second, inner, depth + 1));
      document_.lines[inner] = item.first.Mark().line + 1;
    }
    return map;
  }

  Result<Json> list_of(const YAML::Node& node, const std::string& path, int depth) {
    Json list = Json::array();
    for (const YAML::Node& item : node) {
      YARD_ASSIGN(auto value, value_of(item, joined(path, std::to_string(list.size())), depth + 1));
      list.push_back(std::move(value));
    }
    return list;
  }

  YamlDocument& document_;
  int value_count_ = 0;
};

// The item of `list` called `part`; nullptr when there is none.
Json* find_item(Json& list, std::string_view part) {
  size_t index = 0;
  const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), index);
  if (error == std::errc{} && end == part.data() + part.size())
    return index < list.size() ? &list[index] : nullptr;
  for (Json& item : list) {
    if (item.is_object() && item.contains("name") && item["name"] == Json(std::string(part)))
      return &item;
  }
  return nullptr;
}

Result<Json*> step_into(Json& at, std::string_view part, std::string_view assignment) {
  if (at.is_null()) at = Json::object();
  if (at.is_object()) return &at[std::string(part)];
  Json* item = at.is_array() ? find_item(at, part) : nullptr;
  if (item != nullptr) return item;
  return Error{Code::kInvalidArgument,
               fmt::format("{}: there is no '{}' in the recipe", assignment, part)};
}

}  // namespace

std::string YamlDocument::where(const std::string& path) const {
  const auto it = lines.find(path);
  return it == lines.end() ? name : fmt::format("{}:{}", name, it->second);
}

Result<YamlDocument> parse_yaml(std::string_view text, std::string_view name) {
  YamlDocument document{.name = std::string(name)};
  try {
    const YAML::Node root = YAML::Load(std::string(text));
    YARD_ASSIGN(document.root, Converter(document).value_of(root, "", 0));
  } catch (const YAML::Exception& error) {
    return refused(error.mark, name, error.msg);
  }
  return document;
}

Status apply_override(YamlDocument& document, std::string_view assignment) {
  const size_t equals = assignment.find('=');
  if (equals == std::string_view::npos || equals == 0)
    return Error{Code::kInvalidArgument, fmt::format("'{}': expected key=value", assignment)};
  YARD_ASSIGN(auto value, parse_yaml(assignment.substr(equals + 1), assignment));
  Json* at = &document.root;
  std::string_view path = assignment.substr(0, equals);
  while (true) {
    const size_t dot = path.find('.');
    YARD_ASSIGN(at, step_into(*at, path.substr(0, dot), assignment));
    if (dot == std::string_view::npos) break;
    path.remove_prefix(dot + 1);
  }
  *at = std::move(value.root);
  return Ok{};
}

}  // namespace yard::loop
