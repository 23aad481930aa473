// RunSection: the `run:` key of a recipe, how it wants to be run. yard-train ignores it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace yard::engine {

struct RunSection {
  std::optional<int64_t> ranks;
  std::optional<int64_t> retries;
  std::optional<double> stop_grace_s;
  std::optional<double> price_per_host_hour;
};

// Pure. Empty when the recipe has no `run:`. kInvalidArgument: not YAML, an unknown key under
// `run:` (the nearest named), a value of a wrong kind. The rest of the recipe is not looked at.
Result<RunSection> parse_run_section(const std::string& recipe, std::string_view what);

}  // namespace yard::engine
