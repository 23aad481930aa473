#include "loop/run_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/log.h"

namespace yard::loop {
namespace {

std::string shown(const Json& value) {
  constexpr size_t kShownMax = 60;
  if (value.is_null()) return "absent";
  const std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  return text.size() <= kShownMax ? text : text.substr(0, kShownMax) + "...";
}

Json child(const Json& object, const std::string& key) {
  return object.contains(key) ? object[key] : Json();
}

std::string joined(const std::string& path, const std::string& key) {
  return path.empty() ? key : path + "." + key;
}

}  // namespace

std::optional<std::string> first_difference(const Json& before, const Json& now,
                                            const std::string& path) {
  if (before == now) return std::nullopt;
  if (before.is_object() && now.is_object()) {
    std::set<std::string> keys;
    for (const auto& [key, value] : before.items()) keys.insert(key);
    for (const auto& [key, value] : now.items()) keys.insert(key);
    for (const std::string& key : keys)
      if (auto found = first_difference(child(before, key), child(now, key), joined(path, key)))
        return found;
  }
  if (before.is_array() && now.is_array() && before.size() == now.size()) {
    for (size_t i = 0; i < before.size(); ++i)
      if (auto found = first_difference(before[i], now[i], joined(path, std::to_string(i))))
        return found;
  }
  return fmt::format("{}: {} before, {} now", path, shown(before), shown(now));
}

Json to_json(const RunState& state, const Recipe& recipe, int world_size) {
  Json out = {{"stage_index", state.stage_index},
              {"stage_step", state.stage_step},
              {"global_step", state.global_step},
              {"epoch", state.position.epoch},
              {"batch", state.position.batch},
              {"optimizer_step", state.optimizer_step},
              {"average_begin", state.average_begin},
              {"scaling_factor", state.scaling_factor},
              {"skipped_steps", state.skipped_steps},
              {"rewinds", state.rewinds},
              {"loss_mean", to_json(state.loss_mean)},
              {"world_size", world_size},
              {"recipe", recipe.identity()}};
  if (state.best) out["best"] = {{"by", state.best->by}, {"value", state.best->value}};
  return out;
}

namespace {

// Absent in checkpoints of a time before these were.
Status read_guard_state(const Json& json, const Recipe& recipe, const std::string& what,
                        RunState& state) {
  const int64_t usual_begin = std::min(state.optimizer_step, recipe.ema.start_step);
  YARD_ASSIGN(state.average_begin,
              json_field_or<int64_t>(json, "average_begin", usual_begin, what));
  YARD_ASSIGN(state.skipped_steps, json_field_or<int64_t>(json, "skipped_steps", 0, what));
  YARD_ASSIGN(state.rewinds, json_field_or<int64_t>(json, "rewinds", 0, what));
  YARD_ASSIGN(const Json mean, json_field_or<Json>(json, "loss_mean", Json(), what));
  YARD_ASSIGN(state.loss_mean, loss_mean_from(mean, what));
  if (json.contains("best_loss")) {
    YARD_ASSIGN(const double loss, json_field<double>(json, "best_loss", what));
    state.best = {"loss", loss};
  }
  if (!json.contains("best")) return Ok{};
  BestLook best;
  YARD_ASSIGN(best.by, json_field<std::string>(json["best"], "by", what + ": best"));
  YARD_ASSIGN(best.value, json_field<double>(json["best"], "value", what + ": best"));
  state.best = best;
  return Ok{};
}

}  // namespace

Result<RunState> run_state_from(const Json& json, const Recipe& recipe, int world_size,
                                const std::string& what) {
  RunState state;
  YARD_ASSIGN(const Json identity, json_field<Json>(json, "recipe", what));
  // Through text and back, as the file's numbers went.
  YARD_ASSIGN(const Json now, parse_json(recipe.identity().dump(), "recipe"));
  if (const auto difference = first_difference(identity, now))
    return Error{Code::kInvalidArgument,
                 fmt::format("{}: made by another recipe ({}); go back to it or choose another "
                             "output",
                             what, *difference)};
  YARD_ASSIGN(state.stage_index, json_field<size_t>(json, "stage_index", what));
  YARD_ASSIGN(state.stage_step, json_field<int64_t>(json, "stage_step", what));
  YARD_ASSIGN(state.global_step, json_field<int64_t>(json, "global_step", what));
  YARD_ASSIGN(state.position.epoch, json_field<uint64_t>(json, "epoch", what));
  YARD_ASSIGN(state.position.batch, json_field<uint64_t>(json, "batch", what));
  YARD_ASSIGN(state.optimizer_step, json_field<int64_t>(json, "optimizer_step", what));
  YARD_ASSIGN(state.scaling_factor, json_field<double>(json, "scaling_factor", what));
  YARD_TRY(read_guard_state(json, recipe, what, state));
  YARD_ASSIGN(const int saved_world, json_field<int>(json, "world_size", what));
  if (state.stage_index > recipe.stages.size())
    return Error{Code::kInvalidArgument, what + ": its stage is not in the recipe"};
  if (saved_world != world_size)
    log_warning("{}: saved by {} ranks, resumed by {}: results are no longer equal bit for bit",
                what, saved_world, world_size);
  return state;
}

}  // namespace yard::loop
