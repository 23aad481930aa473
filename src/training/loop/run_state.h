// RunState: where a run stands. With the tensors it is all that resuming needs. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/json.h"
#include "base/result.h"
#include "loader/loader.h"
#include "loop/guardrails.h"
#include "loop/recipe.h"

namespace yard::loop {

// The look that the kept model was chosen by: one of Look::numbers().
struct BestLook {
  std::string by;
  double value = 0;
};

struct RunState {
  size_t stage_index = 0;  // the recipe's stage count once all are done
  int64_t stage_step = 0;  // steps of that stage that are done
  int64_t global_step = 0;
  loader::LoaderState position;  // of the stage's next step
  int64_t optimizer_step = 0;
  int64_t average_begin =
      0;  // the optimiser step after which the average last equalled the weights
  double scaling_factor = 1;
  // Of the present stage.
  int64_t skipped_steps = 0;
  int64_t rewinds = 0;
  LossMean loss_mean;
  std::optional<BestLook> best;
};

Json to_json(const RunState& state, const Recipe& recipe, int world_size);

// kInvalidArgument: not such a state, or made by another recipe; then the first key that differs is
// named, with both values. A world size that differs is told in the log: the run goes on, but not
// bit for bit. `what` names the checkpoint.
Result<RunState> run_state_from(const Json& json, const Recipe& recipe, int world_size,
                                const std::string& what);

// "optimizer.beta1: 0.9 before, 0.8 now"; nullopt when equal.
std::optional<std::string> first_difference(const Json& before, const Json& now,
                                            const std::string& path = "");

}  // namespace yard::loop
