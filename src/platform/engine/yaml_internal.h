// The seam to yaml-cpp: a document without exceptions, fields with errors that name them.
#pragma once

#include <yaml-cpp/yaml.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/platform_config.h"

namespace yard::engine::internal {

// kInvalidArgument with `what` and the line for text that is not YAML.
Result<YAML::Node> parse_yaml(const std::string& text, std::string_view what);
// The node must be a map and have no other keys than these.
Status check_keys(const YAML::Node& node, const std::vector<std::string_view>& known,
                  std::string_view what);
// Leaves `out` when the key is absent.
Status read_field(const YAML::Node& node, const char* key, int64_t& out, std::string_view what);
Status read_field(const YAML::Node& node, const char* key, double& out, std::string_view what);
Status read_field(const YAML::Node& node, const char* key, std::string& out, std::string_view what);
Status read_field(const YAML::Node& node, const char* key, bool& out, std::string_view what);

// kInvalidArgument as parse_home_config(). `document` may be null.
Result<PlatformConfig> parse_platform_config(const YAML::Node& document, std::string_view what,
                                             const std::vector<int>& machine_cores);

}  // namespace yard::engine::internal
