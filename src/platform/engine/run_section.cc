#include "engine/run_section.h"

#include "engine/yaml_internal.h"

namespace yard::engine {
namespace {

template <typename T>
Status read_optional(const YAML::Node& node, const char* key, std::optional<T>& out,
                     std::string_view what) {
  if (!node[key]) return Ok{};
  T value{};
  YARD_TRY(internal::read_field(node, key, value, what));
  out = value;
  return Ok{};
}

}  // namespace

Result<RunSection> parse_run_section(const std::string& recipe, std::string_view what) {
  YARD_ASSIGN(const YAML::Node document, internal::parse_yaml(recipe, what));
  RunSection run;
  if (!document.IsMap() || !document["run"]) return run;
  const YAML::Node node = document["run"];
  const std::string inner = std::string(what) + ": run";
  YARD_TRY(internal::check_keys(node, {"ranks", "retries", "stop_grace_s", "price_per_host_hour"},
                                inner));
  YARD_TRY(read_optional(node, "ranks", run.ranks, inner));
  YARD_TRY(read_optional(node, "retries", run.retries, inner));
  YARD_TRY(read_optional(node, "stop_grace_s", run.stop_grace_s, inner));
  YARD_TRY(read_optional(node, "price_per_host_hour", run.price_per_host_hour, inner));
  return run;
}

}  // namespace yard::engine
