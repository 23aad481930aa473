// PlatformConfig: what yard.yaml says about the jobs of `yard serve` (docs/formats/platform.md).
//
//   slices: {max: 16}                    # hosts at once
//   instance_types:
//     - {type: ml.p4d.24xlarge, cores: 8, gpus: 8, memory: 64GiB, price_per_hour: 3, shared: false}
//   default_instance: {cores: 0, gpus: -1}
//   images:                              # the first that fits
//     - {uri: "*/pytorch-training:2.*", python: /opt/torch2}
//     - {uri: "registry/tool:*", root: /srv/images/tool}
//   file_systems: {fs-0123456789abcdef0: /srv/shared}
//   retries: {host_fault: 3, user_error: 0, preemption: 10, hang: 1, unavailable: 3}
#pragma once

#include <array>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "jobs/host_plan.h"
#include "jobs/platform_retry.h"
#include "jobs/slices.h"

namespace yard::engine {

struct ImageRule {
  std::string uri_pattern;  // of the whole URI; * is any run of characters, ? any one
  jobs::PlanRuntime runtime;
};

struct PlatformConfig {
  jobs::SliceConfig slices;
  std::vector<ImageRule> images;
  std::map<std::string, std::string> file_systems;  // FileSystemId -> folder
  jobs::FaultCounts retries = jobs::default_fault_budgets();
  jobs::PlanHealth health;
  jobs::PlanNetwork network = jobs::PlanNetwork::kAuto;
  double stop_grace_s = 120;
  double hang_after_s = 1800;     // without a sign of life from a script; 0: never
  double hang_after_steps = 100;  // median steps without the end of one; 0: never
};

// The keys of yard.yaml that are ours.
inline constexpr std::array<std::string_view, 11> kPlatformKeys = {
    "slices", "instance_types", "default_instance", "images",       "file_systems",    "retries",
    "health", "network",        "stop_grace_s",     "hang_after_s", "hang_after_steps"};

bool fits_pattern(std::string_view pattern, std::string_view text);
// The runtime of the first rule that fits, else the venv `default_python`. kInvalidArgument when
// there is neither.
Result<jobs::PlanRuntime> runtime_of_image(const PlatformConfig& config, std::string_view image,
                                           const std::string& default_python);
// /dev/nvidia0, ...: empty where there is no driver.
std::vector<int> gpus_of_this_machine();

}  // namespace yard::engine
