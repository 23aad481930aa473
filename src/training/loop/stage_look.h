// A look at the model of a stage: its held-out loss, and what its pictures are like.
#pragma once

#include <optional>
#include <string>

#include "loop/evaluation.h"
#include "loop/picture_scores.h"
#include "loop/run_context_internal.h"
#include "loop/run_state.h"

namespace yard::loop {

struct Look {
  HeldOutReport held_out;
  std::optional<PictureScoreReport> pictures;

  // Numbers by their names, as best.json and the metrics have them.
  Json numbers() const;
};

// Not thread-safe; everything given must outlive it.
class StageLook {
 public:
  StageLook(RunContext& context, const StageRecipe& stage);

  bool enabled() const { return held_out_.enabled(); }
  // Of the weights as they are; rank 0 tells metrics, heartbeat and log. Collective.
  Result<Look> look(int64_t global_step);
  // Whether it is better than `best` by evaluation.best_by (stages that make no pictures: by loss),
  // which it then becomes. What was chosen by another number is no longer compared with. Pure.
  bool is_best(const Look& look, std::optional<BestLook>& best) const;

 private:
  void tell(const Look& look, int64_t global_step);

  RunContext& context_;
  const StageRecipe& stage_;
  HeldOutLoss held_out_;
  PictureScores scores_;
};

}  // namespace yard::loop
