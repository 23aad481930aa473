#include <fmt/format.h>

#include <algorithm>

#include "jobdb/platform_rows_internal.h"
#include "jobdb/platform_step_internal.h"

namespace yard::jobdb::internal {

using jobs::JobStage;
using jobs::PlatformEvent;
using jobs::WarmEvent;

namespace {

bool is_relaunch(PlatformEvent event) {
  return event == PlatformEvent::kRelaunch || event == PlatformEvent::kPreempted;
}

bool ends_attempt(PlatformEvent event, JobStage to) {
  return is_relaunch(event) || event == PlatformEvent::kFault || jobs::is_final(to);
}

// The columns that one event changes, worked out on the row as it was.
void update_row(PlatformJobRow& row, const PlatformStep& step,
                const jobs::PlatformTransition& transition) {
  const bool was_final = jobs::is_final(row.state.stage);
  row.state = transition.next;
  row.modified_t = std::max(row.modified_t, step.t);
  if (!transition.secondary.empty()) row.secondary = transition.secondary;
  if (step.exit_code) row.exit_code = step.exit_code;
  if (!step.model_uri.empty()) row.model_uri = step.model_uri;
  if (!step.output_uri.empty()) row.output_uri = step.output_uri;
  if (transition.next.ending == jobs::EndReason::kFailure ||
      transition.next.ending == jobs::EndReason::kMaxPending)
    if (row.failure_reason.empty()) row.failure_reason = step.detail;
  if (is_relaunch(step.event) && step.cause) row.used.of(*step.cause)++;
  if (step.event == PlatformEvent::kHostsFaulty)
    row.replaced_count += static_cast<int>(step.hosts.size());
  if (step.event == PlatformEvent::kFault)
    row.host_was_at_fault = step.cause != jobs::FaultCause::kUserError;
  for (const int slice : step.avoid)
    if (std::ranges::find(row.avoided_slices, slice) == row.avoided_slices.end())
      row.avoided_slices.push_back(slice);
  if (step.event == PlatformEvent::kHostsCleared) {
    row.queued_t = step.t;
    row.attempt += 1;
  }
  const bool begins =
      step.event == PlatformEvent::kDownloadBegan || step.event == PlatformEvent::kTrainingBegan;
  if (begins && !row.training_start_t) row.training_start_t = step.t;
  if (!was_final && jobs::is_final(row.state.stage) && row.training_start_t)
    row.training_end_t = std::max(step.t, *row.training_start_t);
}

Status store_row(Connection& connection, const PlatformJobRow& row) {
  YARD_ASSIGN(Statement update,
              connection.prepare(
                  "UPDATE platform_jobs SET stage = ?, ending = ?, status = ?, secondary = ?, "
                  "failure_reason = ?, exit_code = ?, modified_t = ?, queued_t = ?, "
                  "training_start_t = ?, training_end_t = ?, attempt = ?, relaunches = ?, "
                  "replaced_count = ?, avoided_slices = ?, host_was_at_fault = ?, model_uri = ?, "
                  "output_uri = ? WHERE id = ?"));
  const auto& used = row.used.by_cause;
  update.bind(to_string(row.state.stage)).bind(to_string(row.state.ending));
  update.bind(jobs::primary_status(row.state)).bind(row.secondary).bind(row.failure_reason);
  update.bind(int64_t{row.exit_code.value_or(-1)}).bind(row.modified_t).bind(row.queued_t);
  update.bind(row.training_start_t.value_or(0)).bind(row.training_end_t.value_or(0));
  update.bind(int64_t{row.attempt}).bind(list_to_text({used.begin(), used.end()}));
  update.bind(int64_t{row.replaced_count}).bind(list_to_text(row.avoided_slices));
  update.bind(int64_t{row.host_was_at_fault}).bind(row.model_uri).bind(row.output_uri);
  return update.bind(row.id).run();
}

Status store_attempt(Connection& connection, const PlatformJobRow& row, const PlatformStep& step) {
  if (step.event == PlatformEvent::kPlaced) {
    YARD_ASSIGN(Statement insert,
                connection.prepare("INSERT INTO platform_attempts (job_id, number, started_t) "
                                   "VALUES (?, ?, ?)"));
    return insert.bind(row.id).bind(int64_t{row.attempt}).bind(step.t).run();
  }
  if (!ends_attempt(step.event, row.state.stage)) return Ok{};
  YARD_ASSIGN(Statement update,
              connection.prepare("UPDATE platform_attempts SET ended_t = max(?, started_t), "
                                 "outcome = ?, cause = ?, detail = ? "
                                 "WHERE job_id = ? AND ended_t = 0"));
  update.bind(step.t).bind(to_string(step.event));
  update.bind(step.cause ? to_string(*step.cause) : std::string_view()).bind(step.detail);
  return update.bind(row.id).run();
}

Status take_over(Connection& connection, const PlatformJobRow& row, const PlatformStep& step) {
  if (!step.warm_from) return Ok{};
  YARD_TRY(move_warm_pool(connection, *step.warm_from, WarmEvent::kMatched,
                          {.until_t = step.t, .reused_by = row.job.name}));
  YARD_TRY(set_all_host_lives(connection, *step.warm_from, jobs::HostLife::kFree));
  return move_warm_pool(connection, row.id, WarmEvent::kTakenOver, {});
}

Status end_or_keep_hosts(Connection& connection, const PlatformJobRow& row,
                         const PlatformStep& step) {
  if (!jobs::is_final(row.state.stage)) return Ok{};
  if (!step.keep_hosts_until_t)
    return move_warm_pool(connection, row.id, WarmEvent::kNotKept, {.until_t = step.t});
  return move_warm_pool(connection, row.id, WarmEvent::kKept,
                        {.since_t = step.t, .until_t = *step.keep_hosts_until_t});
}

}  // namespace

Result<PlatformJobRow> load_job(Connection& connection, int64_t job_id) {
  YARD_ASSIGN(Statement select,
              connection.prepare(
                  fmt::format("SELECT {} FROM platform_jobs WHERE id = ?", kPlatformJobColumns)));
  select.bind(job_id);
  YARD_ASSIGN(const bool there, select.step());
  if (!there) return Error{Code::kNotFound, fmt::format("no job number {}", job_id)};
  return read_platform_job(select);
}

Status add_change(Connection& connection, int64_t job_id, std::string_view status,
                  std::string_view message, double t) {
  // A clock that was set back must not make a change end before it began.
  YARD_ASSIGN(Statement close,
              connection.prepare("UPDATE platform_status_changes SET end_t = max(?, start_t) "
                                 "WHERE job_id = ? AND end_t = 0"));
  YARD_TRY(close.bind(t).bind(job_id).run());
  YARD_ASSIGN(
      Statement insert,
      connection.prepare("INSERT INTO platform_status_changes (job_id, number, status, start_t, "
                         "message) SELECT ?1, count(*), ?2, max(?3, coalesce(max(end_t), 0)), ?4 "
                         "FROM platform_status_changes WHERE job_id = ?1"));
  return insert.bind(job_id).bind(status).bind(t).bind(message).run();
}

Status add_transition(Connection& connection, int64_t job_id, double t, JobStage from,
                      PlatformEvent event, const jobs::PlatformTransition& transition,
                      std::string_view detail) {
  YARD_ASSIGN(Statement supersede,
              connection.prepare("UPDATE platform_transitions SET work_done = 1 "
                                 "WHERE job_id = ? AND work_done = 0"));
  YARD_TRY(supersede.bind(job_id).run());
  YARD_ASSIGN(Statement insert,
              connection.prepare("INSERT INTO platform_transitions (job_id, t, from_stage, event, "
                                 "to_stage, work, work_done, detail) "
                                 "VALUES (?, ?, ?, ?, ?, ?, ?, ?)"));
  insert.bind(job_id).bind(t).bind(to_string(from)).bind(to_string(event));
  insert.bind(to_string(transition.next.stage)).bind(to_string(transition.work));
  insert.bind(int64_t{transition.work == jobs::Work::kNone});
  return insert.bind(detail).run();
}

Status write_hosts(Connection& connection, int64_t job_id,
                   const std::vector<PlatformHostRow>& hosts) {
  YARD_ASSIGN(
      Statement write,
      connection.prepare(
          "INSERT INTO platform_hosts (job_id, number, name, life, group_name, instance_type, "
          "slice, cores, gpus, memory_bytes, price_per_hour, is_shared) "
          "VALUES (?1, CAST(substr(?2, 6) AS INTEGER), ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11) "
          "ON CONFLICT (job_id, number) DO UPDATE SET life = ?3, instance_type = ?5, slice = ?6, "
          "cores = ?7, gpus = ?8, memory_bytes = ?9, price_per_hour = ?10, is_shared = ?11"));
  for (const auto& host : hosts) {
    write.bind(job_id).bind(host.name).bind(to_string(host.life)).bind(host.group);
    write.bind(host.slice.instance_type).bind(int64_t{host.slice.number});
    write.bind(list_to_text(host.slice.cores)).bind(list_to_text(host.slice.gpus));
    write.bind(static_cast<int64_t>(host.slice.memory_bytes)).bind(host.slice.price_per_hour);
    YARD_TRY(write.bind(int64_t{host.slice.is_shared}).run());
    write.reset();
  }
  return Ok{};
}

Status set_all_host_lives(Connection& connection, int64_t job_id, jobs::HostLife life) {
  YARD_ASSIGN(Statement update,
              connection.prepare("UPDATE platform_hosts SET life = ? WHERE job_id = ?"));
  return update.bind(to_string(life)).bind(job_id).run();
}

Status move_warm_pool(Connection& connection, int64_t job_id, WarmEvent event,
                      const WarmPool& now) {
  YARD_ASSIGN(const PlatformJobRow row, load_job(connection, job_id));
  YARD_ASSIGN(const jobs::WarmState next, jobs::advance_warm(row.warm.state, event));
  YARD_ASSIGN(Statement update,
              connection.prepare("UPDATE platform_jobs SET warm_state = ?, warm_since_t = ?, "
                                 "warm_until_t = ?, reused_by = ? WHERE id = ?"));
  update.bind(to_string(next)).bind(now.since_t > 0 ? now.since_t : row.warm.since_t);
  // What a pool was kept for is known only once it ends.
  update.bind(now.until_t).bind(now.reused_by);
  return update.bind(job_id).run();
}

Result<jobs::PlatformTransition> apply_step(Connection& connection, const PlatformStep& step) {
  YARD_ASSIGN(PlatformJobRow row, load_job(connection, step.job_id));
  auto transition = jobs::advance_platform(row.state, step.event);
  if (!transition) return std::move(transition).error().while_("job '" + row.job.name + "'");
  const JobStage from = row.state.stage;
  const bool tells = !transition->secondary.empty() && (transition->secondary != row.secondary ||
                                                        transition->secondary == "Starting");
  update_row(row, step, *transition);
  YARD_TRY(store_row(connection, row));
  if (tells) {
    YARD_TRY(add_change(connection, row.id, transition->secondary, transition->message, step.t));
  }
  YARD_TRY(add_transition(connection, row.id, step.t, from, step.event, *transition, step.detail));
  YARD_TRY(store_attempt(connection, row, step));
  YARD_TRY(write_hosts(connection, row.id, step.hosts));
  YARD_TRY(take_over(connection, row, step));
  YARD_TRY(end_or_keep_hosts(connection, row, step));
  return *transition;
}

}  // namespace yard::jobdb::internal
