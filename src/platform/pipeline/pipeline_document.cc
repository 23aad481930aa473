#include "pipeline/pipeline_document.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <charconv>

namespace yard::pipeline {
namespace {

constexpr int kDepthMax = 32;

Json json_of_scalar(const YAML::Node& node) {
  const std::string& text = node.Scalar();
  if (node.Tag() == "!") return text;  // it was quoted
  bool truth = false;
  if (YAML::convert<bool>::decode(node, truth)) return truth;
  int64_t whole = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), whole);
  if (failed == std::errc() && end == text.data() + text.size()) return whole;
  double number = 0;
  if (YAML::convert<double>::decode(node, number)) return number;
  return text;
}

Result<Json> json_of_node(const YAML::Node& node, std::string_view what, int depth) {
  if (depth > kDepthMax)
    return Error{Code::kInvalidArgument, fmt::format("{}: nested deeper than {}", what, kDepthMax)};
  if (node.IsScalar()) return json_of_scalar(node);
  if (node.IsSequence()) {
    Json list = Json::array();
    for (const auto& item : node) {
      YARD_ASSIGN(Json value, json_of_node(item, what, depth + 1));
      list.push_back(std::move(value));
    }
    return list;
  }
  if (!node.IsMap()) return Json();
  Json map = Json::object();
  for (const auto& item : node) {
    if (!item.first.IsScalar())
      return Error{Code::kInvalidArgument, fmt::format("{}: line {}: a key is not a word", what,
                                                       item.first.Mark().line + 1)};
    if (map.contains(item.first.Scalar()))
      return Error{Code::kInvalidArgument,
                   fmt::format("{}: line {}: the key '{}' is there twice", what,
                               item.first.Mark().line + 1, item.first.Scalar())};
    YARD_ASSIGN(map[item.first.Scalar()], json_of_node(item.second, what, depth + 1));
  }
  return map;
}

// The item of a list by its index or name.
Json* item_of(Json& list, const std::string& part) {
  size_t index = 0;
  const auto [end, failed] = std::from_chars(part.data(), part.data() + part.size(), index);
  if (failed == std::errc() && end == part.data() + part.size())
    return index < list.size() ? &list[index] : nullptr;
  for (Json& item : list)
    if (item.is_object() && item.contains("name") && item["name"] == part) return &item;
  return nullptr;
}

}  // namespace

Result<Json> json_of_yaml(const std::string& yaml, std::string_view what) {
  try {
    return json_of_node(YAML::Load(yaml), what, 0);
  } catch (const YAML::Exception& error) {
    return Error{Code::kInvalidArgument,
                 fmt::format("{}: line {}: {}", what, error.mark.line + 1, error.msg)};
  }
}

Status set_value(Json& document, const std::string& assignment) {
  const size_t equals = assignment.find('=');
  if (equals == assignment.npos || equals == 0)
    return Error{Code::kInvalidArgument,
                 fmt::format("'{}': a pipeline's keys are set with key=value", assignment)};
  YARD_ASSIGN(Json value, json_of_yaml(assignment.substr(equals + 1), assignment));
  Json* at = &document;
  std::string_view path = std::string_view(assignment).substr(0, equals);
  while (true) {
    const size_t dot = path.find('.');
    const std::string part(path.substr(0, dot));
    Json* next = nullptr;
    if (at->is_array()) next = item_of(*at, part);
    if (at->is_object() && (at->contains(part) || dot == path.npos)) next = &(*at)[part];
    if (next == nullptr)
      return Error{Code::kInvalidArgument, fmt::format("'{}': there is no '{}'", assignment, part)};
    at = next;
    if (dot == path.npos) break;
    path.remove_prefix(dot + 1);
  }
  *at = std::move(value);
  return Ok{};
}

}  // namespace yard::pipeline
