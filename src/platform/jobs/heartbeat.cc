#include "jobs/heartbeat.h"

#include <array>
#include <cmath>
#include <utility>

#include "base/json.h"

namespace yard::jobs {
namespace {

constexpr std::array<std::pair<std::string_view, HeartbeatEvent>, 10> kEvents = {{
    {"start", HeartbeatEvent::kStart},
    {"phase", HeartbeatEvent::kPhase},
    {"resume", HeartbeatEvent::kResume},
    {"stage", HeartbeatEvent::kStage},
    {"step", HeartbeatEvent::kStep},
    {"checkpoint", HeartbeatEvent::kCheckpoint},
    {"eval", HeartbeatEvent::kEval},
    {"sample", HeartbeatEvent::kSample},
    {"finish", HeartbeatEvent::kFinish},
    {"error", HeartbeatEvent::kError},
}};

constexpr std::array<std::pair<std::string_view, Phase>, 6> kPhases = {{
    {"startup", Phase::kStartup},
    {"train", Phase::kTrain},
    {"checkpoint", Phase::kCheckpoint},
    {"evaluate", Phase::kEvaluate},
    {"sample", Phase::kSample},
    {"finish", Phase::kFinish},
}};

template <typename Table>
auto find_name(const Table& table, std::string_view name)
    -> std::optional<decltype(table[0].second)> {
  for (const auto& [known, value] : table)
    if (known == name) return value;
  return std::nullopt;
}

std::string text(const Json& line, std::string_view key) {
  auto value = json_field_or<std::string>(line, key, "", "heartbeat");
  return value ? *std::move(value) : std::string();
}

int64_t count(const Json& line, std::string_view key) {
  const auto value = json_field_or<int64_t>(line, key, 0, "heartbeat");
  return value && *value > 0 ? *value : 0;
}

double seconds(const Json& line, std::string_view key) {
  const auto value = json_field_or<double>(line, key, 0.0, "heartbeat");
  return value && std::isfinite(*value) && *value > 0 ? *value : 0.0;
}

double number(const Json& line, std::string_view key) {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  const auto value = json_field_or<double>(line, key, kNone, "heartbeat");
  return value ? *value : kNone;
}

}  // namespace

std::optional<Heartbeat> parse_heartbeat(std::string_view text_line) {
  const auto line = parse_json(text_line, "heartbeat");
  if (!line || !line->is_object()) return std::nullopt;
  const auto event = find_name(kEvents, text(*line, "event"));
  Heartbeat out;
  out.t = seconds(*line, "t");
  if (!event || out.t == 0) return std::nullopt;
  out.event = *event;
  if (out.event == HeartbeatEvent::kPhase) {
    const auto phase = find_name(kPhases, text(*line, "phase"));
    if (!phase) return std::nullopt;
    out.phase = *phase;
  }
  out.attempt = count(*line, "attempt");
  out.stage = text(*line, "stage");
  out.stage_index = count(*line, "stage_index");
  out.stage_count = count(*line, "stage_count");
  out.steps = count(*line, "steps");
  out.resolution = count(*line, "resolution");
  out.step = count(*line, "step");
  out.global_step = count(*line, "global_step");
  out.global_steps = count(*line, "global_steps");
  out.loss = number(*line, "loss");
  out.samples = count(*line, "samples");
  out.step_s = seconds(*line, "step_s");
  out.compute_s = seconds(*line, "compute_s");
  out.data_wait_s = seconds(*line, "data_wait_s");
  out.comm_wait_s = seconds(*line, "comm_wait_s");
  out.blocked_s = seconds(*line, "blocked_s");
  out.path = text(*line, "path");
  out.message = text(*line, "message");
  return out;
}

}  // namespace yard::jobs
