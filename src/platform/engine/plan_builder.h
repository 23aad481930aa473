// From a client's request and the hosts it got to the plan of each host. Pure.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "engine/platform_config.h"
#include "engine/slice_faults.h"
#include "jobdb/platform_db.h"
#include "jobs/host_plan.h"

namespace yard::engine {

struct PlanContext {
  const PlatformConfig* config = nullptr;
  std::string default_python;
  std::string region;
  std::string store_endpoint;
  const SliceFaults* slice_faults = nullptr;  // outlives it; null: none
};

// JOB_DIR/hosts/algo-1
std::string host_dir(const std::string& job_dir, std::string_view host);

// The plan of `host`, one of `hosts`. kInvalidArgument: no runtime for its image, a file system
// that yard.yaml does not have, a field of the request of a wrong kind.
Result<jobs::HostPlan> build_host_plan(const PlanContext& context, const jobdb::PlatformJobRow& job,
                                       const std::vector<jobdb::PlatformHostRow>& hosts,
                                       const jobdb::PlatformHostRow& host);

// What would be wrong with every plan of the job: for create(), before it has hosts.
Status check_plannable(const PlanContext& context, const jobs::JobRequest& request);

}  // namespace yard::engine
