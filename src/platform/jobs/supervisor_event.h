// SupervisorEvent: one line of events.jsonl (docs/formats/job.md). Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace yard::jobs {

enum class SupervisorEventKind {
  kSupervisorStarted,
  kAttemptStarted,
  kRankExited,
  kFault,
  kRelaunched,
  kRecovered,
  kChaosKill,
  kStopAsked,
  kEnded
};

struct SupervisorEvent {
  double t = 0;  // Unix seconds
  SupervisorEventKind kind = SupervisorEventKind::kSupervisorStarted;
  int64_t attempt = 0;
  int64_t rank = 0;
  int64_t code = 0;    // rank_exited; the exit_code of ended
  int64_t signal = 0;  // rank_exited
  int64_t pid = 0;     // supervisor_started
  int64_t master_port = 0;
  std::vector<int64_t> pids;  // attempt_started, by rank
  int64_t global_step = 0;    // chaos_kill
  int64_t spare_count = 0;    // relaunched: ranks that began in an interpreter that waited
  double respawn_ms = 0;
  double kill_ms = 0;
  double recovery_s = 0;
  std::string cause;   // fault
  std::string detail;  // fault; the reason of ended; who asked of stop_asked
  std::string state;   // ended
};

// Without newline.
std::string to_line(const SupervisorEvent& event);
// nullopt: not an event that this version knows.
std::optional<SupervisorEvent> parse_supervisor_event(std::string_view line);

}  // namespace yard::jobs
