// One step of a platform job, inside a transaction that the caller holds.
#pragma once

#include "jobdb/migrations_internal.h"
#include "jobdb/platform_db.h"

namespace yard::jobdb::internal {

Result<jobs::PlatformTransition> apply_step(Connection& connection, const PlatformStep& step);
Status write_hosts(Connection& connection, int64_t job_id,
                   const std::vector<PlatformHostRow>& hosts);
Status add_change(Connection& connection, int64_t job_id, std::string_view status,
                  std::string_view message, double t);
Status add_transition(Connection& connection, int64_t job_id, double t, jobs::JobStage from,
                      jobs::PlatformEvent event, const jobs::PlatformTransition& transition,
                      std::string_view detail);
// advance_warm() on the stored state.
Status move_warm_pool(Connection& connection, int64_t job_id, jobs::WarmEvent event,
                      const WarmPool& now);
Status set_all_host_lives(Connection& connection, int64_t job_id, jobs::HostLife life);
Result<PlatformJobRow> load_job(Connection& connection, int64_t job_id);

}  // namespace yard::jobdb::internal
