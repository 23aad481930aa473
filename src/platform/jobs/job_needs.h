// JobNeeds: what the rules read out of a client's request. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "jobs/platform_job.h"

namespace yard::jobs {

struct HostGroupNeed {
  std::string name = "homogeneousCluster";
  std::string instance_type;
  int host_count = 1;
  bool operator==(const HostGroupNeed&) const = default;
};

struct JobNeeds {
  std::vector<HostGroupNeed> groups;  // never empty
  uint64_t volume_bytes = 0;
  int64_t keep_alive_s = 0;
  double max_runtime_s = 86'400;
  std::optional<double> max_wait_s;  // of waiting and running together
  std::optional<double> max_pending_s;
  bool is_spot = false;
  std::optional<int> maximum_retry_attempts;
  bool never_relaunch = false;
  int priority = 0;   // -100 to 100, higher is sooner
  std::string share;  // who it counts for when hosts are shared out

  int host_count() const;
};

inline constexpr int kJobHostsMax = 1024;
// Tags that mean something to us. Without the first, a job counts for the user who sent it.
inline constexpr std::string_view kShareTag = "trainyard:user";
inline constexpr std::string_view kPriorityTag = "trainyard:priority";
inline constexpr std::string_view kRelaunchTag = "trainyard:relaunch";  // "never"
// Where a request names no instance type.
inline constexpr std::string_view kDefaultInstanceType = "local";

// kInvalidArgument for a field of a wrong kind, more than kJobHostsMax hosts, a priority that is
// no number from -100 to 100.
Result<JobNeeds> job_needs(const JobRequest& request);

// "algo-1", ... with the group of each: the hosts of the job in the order of its groups.
struct NamedHost {
  std::string name;
  HostGroupNeed group;
};
std::vector<NamedHost> named_hosts(const JobNeeds& needs);

}  // namespace yard::jobs
