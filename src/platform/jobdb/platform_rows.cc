#include <fmt/format.h>

#include "jobdb/platform_rows_internal.h"

namespace yard::jobdb::internal {
namespace {

constexpr std::string_view kWhat = "job database";

template <typename T>
Result<T> known(std::optional<T> value, std::string_view column, const std::string& word) {
  if (value) return *value;
  return Error{Code::kCorrupt, fmt::format("{}: unknown {} '{}'", kWhat, column, word)};
}

Result<Json> read_json(Statement& row) {
  auto json = parse_json(row.text(), kWhat);
  if (!json) return Error{Code::kCorrupt, std::move(json).error().message};
  return json;
}

Result<std::vector<int>> read_list(Statement& row) {
  YARD_ASSIGN(const Json json, read_json(row));
  if (!json_internal::holds<std::vector<int>>(json))
    return Error{Code::kCorrupt, fmt::format("{}: '{}' is no list of numbers", kWhat, json.dump())};
  return json.get<std::vector<int>>();
}

std::optional<double> time_or_none(double t) {
  return t == 0 ? std::optional<double>() : std::optional<double>(t);
}

Result<jobs::FaultCounts> read_counts(Statement& row) {
  YARD_ASSIGN(const auto list, read_list(row));
  jobs::FaultCounts counts;
  for (size_t i = 0; i < std::min(list.size(), counts.by_cause.size()); ++i)
    counts.by_cause[i] = list[i];
  return counts;
}

Status read_request(Statement& row, jobs::JobRequest& request) {
  const std::string kind = row.text();
  YARD_ASSIGN(request.kind, known(jobs::job_kind_from(kind), "kind", kind));
  request.name = row.text();
  request.arn = row.text();
  YARD_ASSIGN(request.request, read_json(row));
  request.user = row.text();
  return Ok{};
}

Result<jobs::PlatformState> read_platform_state(Statement& row) {
  jobs::PlatformState state;
  const std::string stage = row.text();
  YARD_ASSIGN(state.stage, known(jobs::job_stage_from(stage), "stage", stage));
  const std::string ending = row.text();
  YARD_ASSIGN(state.ending, known(jobs::end_reason_from(ending), "ending", ending));
  return state;
}

Result<WarmPool> read_warm_pool(Statement& row) {
  WarmPool warm;
  const std::string state = row.text();
  YARD_ASSIGN(warm.state, known(jobs::warm_state_from(state), "warm pool state", state));
  warm.keep_alive_s = row.integer();
  warm.since_t = row.real();
  warm.until_t = row.real();
  warm.reused_by = row.text();
  return warm;
}

}  // namespace

Result<PlatformJobRow> read_platform_job(Statement& row) {
  PlatformJobRow out;
  out.id = row.integer();
  YARD_TRY(read_request(row, out.job));
  out.dir = row.text();
  YARD_ASSIGN(out.state, read_platform_state(row));
  out.secondary = row.text();
  out.failure_reason = row.text();
  if (const int64_t code = row.integer(); code >= 0) out.exit_code = static_cast<int>(code);
  out.created_t = row.real();
  out.modified_t = row.real();
  out.queued_t = row.real();
  out.training_start_t = time_or_none(row.real());
  out.training_end_t = time_or_none(row.real());
  out.attempt = static_cast<int>(row.integer());
  YARD_ASSIGN(out.used, read_counts(row));
  out.replaced_count = static_cast<int>(row.integer());
  YARD_ASSIGN(out.avoided_slices, read_list(row));
  out.host_was_at_fault = row.integer() != 0;
  out.model_uri = row.text();
  out.output_uri = row.text();
  YARD_ASSIGN(out.warm, read_warm_pool(row));
  return out;
}

Result<PlatformHostRow> read_platform_host(Statement& row) {
  PlatformHostRow out;
  out.name = row.text();
  const std::string life = row.text();
  YARD_ASSIGN(out.life, known(jobs::host_life_from(life), "life of a host", life));
  out.group = row.text();
  out.slice.instance_type = row.text();
  out.slice.number = static_cast<int>(row.integer());
  YARD_ASSIGN(out.slice.cores, read_list(row));
  YARD_ASSIGN(out.slice.gpus, read_list(row));
  out.slice.memory_bytes = static_cast<uint64_t>(row.integer());
  out.slice.price_per_hour = row.real();
  out.slice.is_shared = row.integer() != 0;
  return out;
}

Result<PlatformTransitionRow> read_platform_transition(Statement& row) {
  PlatformTransitionRow out;
  out.id = row.integer();
  out.job_id = row.integer();
  out.t = row.real();
  const std::string from = row.text();
  YARD_ASSIGN(out.from, known(jobs::job_stage_from(from), "stage", from));
  const std::string event = row.text();
  YARD_ASSIGN(out.event, known(jobs::platform_event_from(event), "event", event));
  const std::string to = row.text();
  YARD_ASSIGN(out.to, known(jobs::job_stage_from(to), "stage", to));
  const std::string work = row.text();
  YARD_ASSIGN(out.work, known(jobs::work_from(work), "work", work));
  out.work_done = row.integer() != 0;
  out.detail = row.text();
  return out;
}

std::string list_to_text(const std::vector<int>& list) {
  return Json(list).dump();
}

}  // namespace yard::jobdb::internal
