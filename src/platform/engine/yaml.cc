#include <fmt/format.h>

#include <algorithm>

#include "base/nearest_name.h"
#include "engine/yaml_internal.h"

namespace yard::engine::internal {
namespace {

template <typename T>
Status read_as(const YAML::Node& node, const char* key, T& out, std::string_view what,
               std::string_view wanted) {
  const YAML::Node value = node[key];
  if (!value) return Ok{};
  try {
    if (value.IsScalar()) {
      out = value.as<T>();
      return Ok{};
    }
  } catch (const YAML::Exception&) {
    // told below, as any value of a wrong kind
  }
  return Error{Code::kInvalidArgument, fmt::format("{}: '{}' is not {}", what, key, wanted)};
}

}  // namespace

Result<YAML::Node> parse_yaml(const std::string& text, std::string_view what) {
  try {
    return YAML::Load(text);
  } catch (const YAML::Exception& error) {
    return Error{Code::kInvalidArgument,
                 fmt::format("{}: line {}: {}", what, error.mark.line + 1, error.msg)};
  }
}

Status check_keys(const YAML::Node& node, const std::vector<std::string_view>& known,
                  std::string_view what) {
  if (!node.IsMap())
    return Error{Code::kInvalidArgument, fmt::format("{}: not a list of 'key: value'", what)};
  for (const auto& item : node) {
    if (!item.first.IsScalar())
      return Error{Code::kInvalidArgument, fmt::format("{}: a key is not a word", what)};
    const std::string& key = item.first.Scalar();
    if (std::ranges::find(known, std::string_view(key)) == known.end())
      return Error{Code::kInvalidArgument,
                   fmt::format("{}: unknown key '{}'{}", what, key, suggestion(key, known))};
  }
  return Ok{};
}

Status read_field(const YAML::Node& node, const char* key, int64_t& out, std::string_view what) {
  return read_as(node, key, out, what, "a whole number");
}
Status read_field(const YAML::Node& node, const char* key, double& out, std::string_view what) {
  return read_as(node, key, out, what, "a number");
}
Status read_field(const YAML::Node& node, const char* key, std::string& out,
                  std::string_view what) {
  return read_as(node, key, out, what, "a word");
}

Status read_field(const YAML::Node& node, const char* key, bool& out, std::string_view what) {
  return read_as(node, key, out, what, "true or false");
}

}  // namespace yard::engine::internal
