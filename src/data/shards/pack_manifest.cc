#include "shards/pack_manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/json.h"
#include "shards/sample_name.h"

namespace yard::shards {
namespace {

using Fields = std::vector<std::pair<std::string, std::string>>;

// An object of strings.
Result<Fields> strings_of(const Json& sample, const char* field, std::string_view what) {
  Fields fields;
  const auto found = sample.find(field);
  if (found == sample.end() || found->is_null()) return fields;
  if (!found->is_object())
    return Error{Code::kInvalidArgument,
                 fmt::format("{}: '{}' must be an object of extensions", what, field)};
  for (const auto& [extension, value] : found->items()) {
    if (!value.is_string())
      return Error{Code::kInvalidArgument,
                   fmt::format("{}: '{}': '{}' must be a string", what, field, extension)};
    fields.emplace_back(extension, value.get<std::string>());
  }
  return fields;
}

Status check_extensions(const ManifestSample& sample, std::string_view what) {
  std::set<std::string> seen;
  for (const Fields* fields : {&sample.files, &sample.texts})
    for (const auto& [extension, value] : *fields)
      if (!seen.insert(to_lower(extension)).second)
        return Error{Code::kInvalidArgument, fmt::format("{}: sample '{}' has two members '{}'",
                                                         what, sample.key, to_lower(extension))};
  if (seen.empty())
    return Error{Code::kInvalidArgument,
                 fmt::format("{}: sample '{}' has no members", what, sample.key)};
  return Ok{};
}

}  // namespace

Result<ManifestSample> parse_manifest_line(std::string_view line, std::string_view what) {
  YARD_ASSIGN(const Json json, parse_json(line, what));
  ManifestSample sample;
  YARD_ASSIGN(sample.key, json_field<std::string>(json, "key", what));
  YARD_TRY(refuse_unknown_keys(json, {"key", "files", "text", "json"}, what));
  YARD_ASSIGN(sample.files, strings_of(json, "files", what));
  YARD_ASSIGN(sample.texts, strings_of(json, "text", what));
  // Keys are sorted, so that the bytes do not depend on who wrote the line.
  if (const auto found = json.find("json"); found != json.end())
    sample.texts.emplace_back("json", found->dump(-1, ' ', false, Json::error_handler_t::replace));
  YARD_TRY(check_extensions(sample, what));
  return sample;
}

}  // namespace yard::shards
