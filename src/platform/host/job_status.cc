#include "host/job_status.h"

#include <cmath>

#include "base/file.h"

namespace yard::host {
namespace {

Json finite_or_null(double value) {
  return std::isfinite(value) ? Json(value) : Json();
}

Json to_json(const RankStatus& rank) {
  return {{"rank", rank.rank},
          {"pid", rank.pid},
          {"alive", rank.alive},
          {"code", rank.code},
          {"signal", rank.signal}};
}

Result<RankStatus> rank_from(const Json& json, std::string_view what) {
  RankStatus rank;
  YARD_ASSIGN(rank.rank, json_field<int>(json, "rank", what));
  YARD_ASSIGN(rank.pid, json_field<int>(json, "pid", what));
  YARD_ASSIGN(rank.alive, json_field<bool>(json, "alive", what));
  YARD_ASSIGN(rank.code, json_field<int>(json, "code", what));
  YARD_ASSIGN(rank.signal, json_field<int>(json, "signal", what));
  return rank;
}

}  // namespace

Json to_json(const JobStatus& status) {
  Json ranks = Json::array();
  for (const auto& rank : status.ranks) ranks.push_back(to_json(rank));
  return {{"name", status.name},
          {"state", jobs::to_string(status.state)},
          {"reason", status.reason},
          {"exit_code", status.exit_code},
          {"attempt", status.attempt},
          {"restarts", status.restarts},
          {"master_port", status.master_port},
          {"spare_count", status.spare_count},
          {"supervisor",
           {{"pid", status.supervisor.pid}, {"start_ticks", status.supervisor.start_ticks}}},
          {"ranks", std::move(ranks)},
          {"progress",
           {{"stage", status.stage},
            {"global_step", status.global_step},
            {"global_steps", status.global_steps},
            {"loss", finite_or_null(status.loss)}}},
          {"started_t", status.started_t},
          {"updated_t", status.updated_t},
          {"ended_t", status.ended_t}};
}

Result<JobStatus> read_status(const std::string& path) {
  YARD_ASSIGN(const std::string text, read_file(path, uint64_t{16} << 20));
  YARD_ASSIGN(const Json json, parse_json(text, path));
  JobStatus status;
  YARD_ASSIGN(status.name, json_field<std::string>(json, "name", path));
  YARD_ASSIGN(const std::string state, json_field<std::string>(json, "state", path));
  const auto known = jobs::job_state_from(state);
  if (!known) return Error{Code::kCorrupt, path + ": unknown state '" + state + "'"};
  status.state = *known;
  YARD_ASSIGN(status.reason, json_field<std::string>(json, "reason", path));
  YARD_ASSIGN(status.exit_code, json_field<int>(json, "exit_code", path));
  YARD_ASSIGN(status.attempt, json_field<int>(json, "attempt", path));
  YARD_ASSIGN(status.restarts, json_field<int>(json, "restarts", path));
  YARD_ASSIGN(status.master_port, json_field<int>(json, "master_port", path));
  YARD_ASSIGN(status.spare_count, json_field_or<int>(json, "spare_count", 0, path));
  YARD_ASSIGN(const Json supervisor, json_field<Json>(json, "supervisor", path));
  YARD_ASSIGN(status.supervisor.pid, json_field<int>(supervisor, "pid", path));
  YARD_ASSIGN(status.supervisor.start_ticks, json_field<uint64_t>(supervisor, "start_ticks", path));
  YARD_ASSIGN(const Json ranks, json_field<Json>(json, "ranks", path));
  for (const Json& item : ranks) {
    YARD_ASSIGN(RankStatus rank, rank_from(item, path));
    status.ranks.push_back(rank);
  }
  YARD_ASSIGN(const Json progress, json_field<Json>(json, "progress", path));
  YARD_ASSIGN(status.stage, json_field<std::string>(progress, "stage", path));
  YARD_ASSIGN(status.global_step, json_field<int64_t>(progress, "global_step", path));
  YARD_ASSIGN(status.global_steps, json_field<int64_t>(progress, "global_steps", path));
  YARD_ASSIGN(status.loss, json_field_or<double>(progress, "loss", status.loss, path));
  YARD_ASSIGN(status.started_t, json_field<double>(json, "started_t", path));
  YARD_ASSIGN(status.updated_t, json_field<double>(json, "updated_t", path));
  YARD_ASSIGN(status.ended_t, json_field<double>(json, "ended_t", path));
  return status;
}

}  // namespace yard::host
