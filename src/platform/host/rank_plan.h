// What one rank of an attempt is given: environment and cores. Pure.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "jobs/job_spec.h"

namespace yard::host {

struct AttemptPlan {
  int attempt = 0;
  int master_port = 0;
  std::string job_dir;
};

// `base` plus the spec's variables plus those of docs/formats/rank.md, which win.
// `core_count` is the host's.
std::map<std::string, std::string> rank_environment(const std::map<std::string, std::string>& base,
                                                    const jobs::JobSpec& spec,
                                                    const AttemptPlan& plan, int rank,
                                                    size_t core_count);

// The part of `cores` for one rank: neighbours, sizes differ by one at most. With fewer cores than
// ranks everybody gets all of them.
std::vector<int> rank_cores(const std::vector<int>& cores, int ranks, int rank);

}  // namespace yard::host
