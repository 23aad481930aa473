// HomeConfig: $YARD_HOME/yard.yaml, what the owner of this installation decided.
//
//   hosts:                      # slices of this machine; default: one with all cores
//     - {name: left, cores: "0-3"}
//     - {name: right, cores: "4,5,8-11"}
//
// Its other keys are about the jobs of `yard serve`: platform_config.h.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "engine/platform_config.h"

namespace yard::engine {

struct HomeConfig {
  std::vector<Host> hosts;
  PlatformConfig platform;
};

// The defaults when there is no such file. `machine_cores`: those that we may run on.
Result<HomeConfig> load_home_config(const std::string& path, const std::vector<int>& machine_cores);
// Pure. kInvalidArgument: unknown key (the nearest named), a core that this machine has not, a
// core or a name given twice, no host at all.
Result<HomeConfig> parse_home_config(const std::string& text, std::string_view what,
                                     const std::vector<int>& machine_cores);
// "0-3,8": ascending. kInvalidArgument.
Result<std::vector<int>> parse_core_list(std::string_view text);
std::vector<int> cores_of_this_machine();  // of our own affinity

}  // namespace yard::engine
