// RunHistory: what the ranks of a job told in their heartbeats (docs/formats/rank.md), put
// together.
//
// Plain data and pure functions; a reader gives the text of each heartbeat file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace yard::report {

// Times are Unix seconds; a number that was absent or null (a loss that is not finite) is NaN.
struct Step {
  double time = 0;  // when the step ended
  int attempt = 0;
  std::string stage;
  int64_t global_step = 0;
  double loss = 0;
  double step_s = 0;
  double compute_s = 0;
  double data_wait_s = 0;
  double comm_wait_s = 0;
  int64_t sample_count = 0;
};

struct Stage {
  std::string name;
  int64_t step_count = 0;
  int64_t resolution = 0;
  int64_t first_global_step = 0;  // 0: no step of it was reported
};

struct HeldOutLoss {
  double time = 0;
  std::string stage;
  int64_t global_step = 0;
  double loss = 0;
};

struct SampleGrid {
  double time = 0;
  std::string stage;
  int64_t global_step = 0;
  std::string path;  // relative to the job's folder, or absolute
  std::vector<std::string> prompts;
};

enum class EventKind { kStart, kResume, kStage, kCheckpoint, kFinish, kError };

struct Event {
  double time = 0;
  EventKind kind = EventKind::kStart;
  int attempt = 0;
  int rank = 0;
  int64_t global_step = 0;
  double seconds = 0;  // kCheckpoint: training stood still for so long
  std::string text;    // stage's name, checkpoint's path or error message
};

// The time between the last sign of one attempt and the first step of the next.
struct Recovery {
  int attempt = 0;  // the one that took over
  double time = 0;  // last sign of the one before
  double seconds = 0;
  int64_t lost_step_count = 0;  // steps that were done again
  int64_t resumed_step = 0;
};

struct RunHistory {
  int rank_count = 0;
  int attempt_count = 0;
  double begin_time = 0;  // first and last sign of any rank
  double end_time = 0;
  int64_t global_step_count = 0;  // of the whole run, as the ranks planned it
  int64_t unreadable_line_count = 0;
  std::vector<Stage> stages;  // in the order in which they began
  std::vector<Step> steps;    // rank 0's, by time; steps done twice are there twice
  std::vector<HeldOutLoss> held_out;
  std::vector<SampleGrid> samples;  // the last told for each (stage, global step), by step
  std::vector<Event> events;        // by time
  std::vector<Recovery> recoveries;
};

// Reads heartbeat files. Damaged lines are counted, never fatal: a report is wanted most after an
// accident. Not thread-safe.
class RunHistoryReader {
 public:
  // One file's text. Files may come in any order; each begins with its `start` line.
  void add(std::string_view heartbeats);
  RunHistory finish() &&;

 private:
  struct Source {
    int rank = 0;
    int attempt = 0;
  };
  bool add_line(std::string_view line, Source& source);

  RunHistory history_;
};

// The steps that count: of those done more than once only the last, ordered by global_step.
std::vector<Step> surviving_steps(const RunHistory& history);

}  // namespace yard::report
