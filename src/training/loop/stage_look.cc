#include "loop/stage_look.h"

#include <fmt/format.h>

#include <cmath>

#include "base/log.h"

namespace yard::loop {

Json Look::numbers() const {
  Json out = {{"loss", held_out.loss}};
  if (!pictures) return out;
  out["frechet"] = pictures->frechet;
  if (pictures->clip_score) out["clip_score"] = *pictures->clip_score;
  return out;
}

StageLook::StageLook(RunContext& context, const StageRecipe& stage)
    : context_(context), stage_(stage), held_out_(context, stage), scores_(context, stage) {}

Result<Look> StageLook::look(int64_t global_step) {
  Look out;
  YARD_ASSIGN(out.held_out, held_out_.measure());
  if (scores_.enabled()) {
    YARD_ASSIGN(out.pictures, scores_.measure());
  }
  if (context_.is_first_rank()) tell(out, global_step);
  return out;
}

void StageLook::tell(const Look& look, int64_t global_step) {
  Json fields = look.numbers();
  fields["stage"] = stage_.name;
  std::string text = fmt::format("held-out loss {:.5f}", look.held_out.loss);
  if (look.pictures) {
    fields["features"] = context_.features->name();
    text += fmt::format(", {} pictures at a distance of {:.4g} ({} features)",
                        look.pictures->picture_count, look.pictures->frechet,
                        context_.features->name());
    if (look.pictures->clip_score)
      text += fmt::format(", CLIP score {:.4g}", *look.pictures->clip_score);
  }
  text += fmt::format(" after step {}", global_step);
  std::string buckets;
  for (size_t b = 0; b < look.held_out.bucket_losses.size(); ++b) {
    fields[fmt::format("bucket_{}_loss", b)] = look.held_out.bucket_losses[b];
    buckets += fmt::format("{}{:.4f}", b == 0 ? "" : " ", look.held_out.bucket_losses[b]);
  }
  context_.metrics.tell("eval", global_step, fields);
  fields["global_step"] = global_step;
  context_.heartbeat.tell("eval", std::move(fields));
  log_info("{}{}", text,
           buckets.empty() ? "" : ", loss by timestep from clean to noisy: " + buckets);
}

bool StageLook::is_best(const Look& look, std::optional<BestLook>& best) const {
  const Json numbers = look.numbers();
  const std::string wanted(to_string(context_.recipe.evaluation.best_by));
  const std::string by = numbers.contains(wanted) ? wanted : "loss";
  const double value = numbers[by];
  if (!std::isfinite(value)) return false;
  const bool compared = best && best->by == by;
  const bool better = !compared || (by == "clip_score" ? value > best->value : value < best->value);
  if (better) best = {by, value};
  return better;
}

}  // namespace yard::loop
