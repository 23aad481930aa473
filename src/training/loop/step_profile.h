// StepProfile: a trace of some steps, and a table of what their time went to.
//
// The trace is libtorch's own (Kineto), in Chrome's format, which https://ui.perfetto.dev opens;
// data, forward, backward, communication and optimizer are ranges in it. Not thread-safe; one at a
// time in a process.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "loop/stage_step.h"

namespace yard::loop {

class StepProfile {
 public:
  static constexpr int64_t kSkippedSteps = 2;  // which make what later ones find made

  // Traces `step_count` steps after kSkippedSteps, to `path`.trace.json and, as a table,
  // `path`.txt. 0: does nothing.
  StepProfile(std::string path, int64_t step_count)
      : path_(std::move(path)), step_count_(step_count) {}
  ~StepProfile();
  StepProfile(const StepProfile&) = delete;
  StepProfile& operator=(const StepProfile&) = delete;

  void begin_step();
  // The files are written after the last step. kExhausted, kUnavailable, ...: they cannot be.
  Status end_step(const StepReport& report);

 private:
  Status finish();

  const std::string path_;
  const int64_t step_count_;
  int64_t seen_count_ = 0;
  bool is_tracing_ = false;
  std::vector<StepReport> steps_;
};

// Part, mean milliseconds of a step and share of its time, a line each. Pure. Contract: some steps.
std::string profile_table(const std::vector<StepReport>& steps);

}  // namespace yard::loop
