#include <algorithm>

#include "engine/controller_internal.h"
#include "engine/job_view_internal.h"

namespace yard::engine::internal {
namespace {

constexpr double kSecondsPerHour = 3600;

double warm_pool_s(const jobdb::WarmPool& warm, double now_t) {
  if (warm.since_t <= 0) return 0;
  const bool lasts = warm.state == jobs::WarmState::kAvailable;
  return std::max(0.0, (lasts ? now_t : warm.until_t) - warm.since_t);
}

}  // namespace

Result<JobRows> load_job_rows(jobdb::PlatformDb& db, jobdb::PlatformJobRow row) {
  JobRows rows;
  const int64_t job_id = row.id;
  rows.row = std::move(row);
  YARD_ASSIGN(rows.hosts, db.hosts(job_id));
  YARD_ASSIGN(rows.changes, db.changes(job_id));
  YARD_ASSIGN(rows.attempts, db.attempts(job_id));
  return rows;
}

jobs::JobView view_of(const JobRows& rows, double now_t) {
  const auto& row = rows.row;
  const auto account = jobs::account_of(rows.changes, lost_attempts(rows.attempts), now_t);
  jobs::JobView view;
  view.job = row.job;
  view.status = jobs::primary_status(row.state);
  view.secondary_status = row.secondary;
  view.changes = rows.changes;
  view.failure_reason = row.failure_reason;
  view.exit_code = row.exit_code;
  view.created_t = row.created_t;
  view.modified_t = row.modified_t;
  view.training_start_t = row.training_start_t;
  view.training_end_t = row.training_end_t;
  view.training_s = account.active_s();
  view.billable_s = account.billable_s();
  view.account = jobs::to_json(account);
  view.model_uri = row.model_uri;
  view.output_uri = row.output_uri;
  view.warm_pool_status = jobs::to_string(row.warm.state);
  view.warm_pool_billable_s = warm_pool_s(row.warm, now_t);
  view.reused_by = row.warm.reused_by;
  view.dir = row.dir;
  view.attempt = row.attempt;
  for (const auto& host : rows.hosts) {
    view.hosts.push_back(host.name);
    view.cost +=
        (view.billable_s + view.warm_pool_billable_s) / kSecondsPerHour * host.slice.price_per_hour;
  }
  return view;
}

}  // namespace yard::engine::internal
