// From the arguments of `yard run` to a job's spec.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "commands.h"
#include "jobs/job_spec.h"

namespace yard::app {

struct RunArguments {
  std::string source;                  // FILE.py, RECIPE.yaml or PIPELINE.yaml
  std::vector<std::string> arguments;  // of the script, or key=value
  std::string name;
  std::string output;
  std::string python;
  std::string resume;
  std::vector<std::string> env;  // NAME=VALUE
  std::optional<int64_t> ranks;
  std::optional<int64_t> retries;
  std::optional<double> stop_grace_s;
  std::optional<double> price_per_host_hour;
  bool detach = false;
  // Chaos, for the demo and the tests.
  std::string kill_step;  // of a pipeline
  std::optional<int64_t> kill_rank;
  std::optional<int64_t> after_step;
};

struct JobSource {
  jobs::JobSpec spec;
  std::optional<std::string> recipe;  // its text
};

// Reads the recipe, if it is one. kInvalidArgument: neither .py nor .yaml, a bad `run:` section, an
// override without '=', an impossible number; kNotFound: no such file.
Result<JobSource> read_job_source(const RunArguments& arguments, const Context& context);

}  // namespace yard::app
