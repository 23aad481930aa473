// Heartbeat: what a rank tells, one JSON object per line (docs/formats/rank.md).
//
// Pure. Values that a line lacks stay at their defaults; a loss that is not finite is NaN.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

namespace yard::jobs {

enum class HeartbeatEvent {
  kStart,
  kPhase,
  kResume,
  kStage,
  kStep,
  kCheckpoint,
  kEval,
  kSample,
  kFinish,
  kError
};

enum class Phase { kStartup, kTrain, kCheckpoint, kEvaluate, kSample, kFinish };

struct Heartbeat {
  double t = 0;  // Unix seconds
  HeartbeatEvent event = HeartbeatEvent::kStart;
  int64_t attempt = 0;  // start
  Phase phase = Phase::kStartup;
  std::string stage;
  int64_t stage_index = 0;
  int64_t stage_count = 0;
  int64_t steps = 0;  // of the stage
  int64_t resolution = 0;
  int64_t step = 0;  // 1-based in the stage
  int64_t global_step = 0;
  int64_t global_steps = 0;
  double loss = std::numeric_limits<double>::quiet_NaN();
  int64_t samples = 0;  // of the global batch
  double step_s = 0;
  double compute_s = 0;
  double data_wait_s = 0;
  double comm_wait_s = 0;
  double blocked_s = 0;  // checkpoint
  std::string path;      // checkpoint, sample
  std::string message;   // error
};

// One line without its newline. nullopt for what is not a heartbeat: not JSON, no `t`, or an event
// or phase that this version does not know. Numbers that are negative or not finite count as 0.
std::optional<Heartbeat> parse_heartbeat(std::string_view line);

}  // namespace yard::jobs
