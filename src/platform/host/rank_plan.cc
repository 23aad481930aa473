#include "host/rank_plan.h"

#include <algorithm>

#include "base/result.h"
#include "host/job_folder.h"

namespace yard::host {

std::map<std::string, std::string> rank_environment(const std::map<std::string, std::string>& base,
                                                    const jobs::JobSpec& spec,
                                                    const AttemptPlan& plan, int rank,
                                                    size_t core_count) {
  std::map<std::string, std::string> env = base;
  for (const auto& [name, value] : spec.env) env[name] = value;
  env["RANK"] = env["LOCAL_RANK"] = std::to_string(rank);
  env["WORLD_SIZE"] = env["LOCAL_WORLD_SIZE"] = std::to_string(spec.ranks);
  env["GROUP_RANK"] = "0";
  env["MASTER_ADDR"] = "127.0.0.1";
  env["MASTER_PORT"] = std::to_string(plan.master_port);
  env["TORCHELASTIC_RUN_ID"] = spec.name;
  env["TORCHELASTIC_RESTART_COUNT"] = std::to_string(plan.attempt);
  env["YARD_JOB_DIR"] = plan.job_dir;
  env["YARD_OUTPUT_DIR"] = spec.output_dir;
  env["YARD_HEARTBEAT"] = JobFolder{plan.job_dir}.heartbeat(rank);
  const size_t share = core_count / static_cast<size_t>(spec.ranks);
  env.try_emplace("OMP_NUM_THREADS", std::to_string(std::max<size_t>(1, share)));
  // Python would keep what a script prints to itself, and lose it when the script is killed.
  env.try_emplace("PYTHONUNBUFFERED", "1");
  return env;
}

std::vector<int> rank_cores(const std::vector<int>& cores, int ranks, int rank) {
  YARD_CHECK(ranks > 0 && rank >= 0 && rank < ranks);
  const size_t count = cores.size();
  if (count < static_cast<size_t>(ranks)) return cores;
  const size_t begin = count * static_cast<size_t>(rank) / static_cast<size_t>(ranks);
  const size_t end = count * static_cast<size_t>(rank + 1) / static_cast<size_t>(ranks);
  return {cores.begin() + static_cast<std::ptrdiff_t>(begin),
          cores.begin() + static_cast<std::ptrdiff_t>(end)};
}

}  // namespace yard::host
