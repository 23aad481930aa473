#include "jobs/supervisor_event.h"

#include <algorithm>
#include <iterator>

#include "base/json.h"

namespace yard::jobs {
namespace {

using Kind = SupervisorEventKind;

constexpr std::string_view kNames[] = {
    "supervisor_started", "attempt_started", "rank_exited", "fault", "relaunched",
    "recovered",          "chaos_kill",      "stop_asked",  "ended"};

void add_fields(const SupervisorEvent& event, Json& line) {
  switch (event.kind) {
    case Kind::kSupervisorStarted:
      line.update({{"pid", event.pid}});
      return;
    case Kind::kAttemptStarted:
      line.update(
          {{"attempt", event.attempt}, {"master_port", event.master_port}, {"pids", event.pids}});
      return;
    case Kind::kRankExited:
      line.update({{"attempt", event.attempt},
                   {"rank", event.rank},
                   {"code", event.code},
                   {"signal", event.signal}});
      return;
    case Kind::kFault:
      line.update({{"attempt", event.attempt},
                   {"rank", event.rank},
                   {"cause", event.cause},
                   {"detail", event.detail}});
      return;
    case Kind::kRelaunched:
      line.update({{"attempt", event.attempt},
                   {"spare_count", event.spare_count},
                   {"respawn_ms", event.respawn_ms},
                   {"kill_ms", event.kill_ms}});
      return;
    case Kind::kRecovered:
      line.update({{"attempt", event.attempt}, {"recovery_s", event.recovery_s}});
      return;
    case Kind::kChaosKill:
      line.update({{"rank", event.rank}, {"global_step", event.global_step}});
      return;
    case Kind::kStopAsked:
      line.update({{"by", event.detail}});
      return;
    case Kind::kEnded:
      line.update({{"state", event.state}, {"reason", event.detail}, {"exit_code", event.code}});
      return;
  }
}

template <typename T>
void read(const Json& line, std::string_view key, T& out) {
  if (auto value = json_field_or<T>(line, key, out, "event")) out = *std::move(value);
}

}  // namespace

std::string to_line(const SupervisorEvent& event) {
  Json line = {{"t", event.t}, {"event", kNames[static_cast<size_t>(event.kind)]}};
  add_fields(event, line);
  return line.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::optional<SupervisorEvent> parse_supervisor_event(std::string_view text) {
  const auto line = parse_json(text, "event");
  if (!line || !line->is_object()) return std::nullopt;
  std::string name;
  read(*line, "event", name);
  const auto known = std::find(std::begin(kNames), std::end(kNames), name);
  SupervisorEvent event;
  read(*line, "t", event.t);
  if (known == std::end(kNames) || !(event.t > 0)) return std::nullopt;
  event.kind = static_cast<Kind>(known - std::begin(kNames));
  const bool ended = event.kind == Kind::kEnded;
  read(*line, "attempt", event.attempt);
  read(*line, "rank", event.rank);
  read(*line, ended ? "exit_code" : "code", event.code);
  read(*line, "signal", event.signal);
  read(*line, "pid", event.pid);
  read(*line, "master_port", event.master_port);
  read(*line, "pids", event.pids);
  read(*line, "global_step", event.global_step);
  read(*line, "spare_count", event.spare_count);
  read(*line, "respawn_ms", event.respawn_ms);
  read(*line, "kill_ms", event.kill_ms);
  read(*line, "recovery_s", event.recovery_s);
  read(*line, "cause", event.cause);
  read(*line, ended ? "reason" : event.kind == Kind::kStopAsked ? "by" : "detail", event.detail);
  read(*line, "state", event.state);
  return event;
}

}  // namespace yard::jobs
