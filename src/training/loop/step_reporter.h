// StepReporter: tells each step to the supervisor, the metrics and the log, and what the guardrails
// see in it.
#pragma once

#include <chrono>

#include "loop/guardrails.h"
#include "loop/pace.h"
#include "loop/run_context_internal.h"
#include "loop/run_state.h"
#include "loop/stage_step.h"

namespace yard::loop {

// Not thread-safe. `context` must outlive it.
class StepReporter {
 public:
  explicit StepReporter(RunContext& context);

  // `state` is that after the step.
  void tell(const StepReport& report, const StageRecipe& stage, const RunState& state);
  // An alarm in heartbeats and log: something that training survives.
  void alarm(std::string_view kind, const std::string& message);

 private:
  void tell_heartbeat(const StepReport& report, const StageRecipe& stage, const RunState& state);
  void tell_pace(const StepReport& report, const StageRecipe& stage, const RunState& state);
  void watch(const StepReport& report);
  LoaderTotals loader_totals() const;

  RunContext& context_;
  Pace pace_;
  RankTimes rank_times_;
  DataWaitWatch data_wait_;
  std::chrono::steady_clock::time_point logged_at_{};
};

}  // namespace yard::loop
