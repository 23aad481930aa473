// The sections of a recipe that are one map of keys each.
//
// Each takes the document, whose root is a map, and fills in its part of the recipe.
// kInvalidArgument: see parse_recipe().
#pragma once

#include <cstdint>

#include "base/result.h"
#include "loop/recipe.h"
#include "loop/yaml_document.h"

namespace yard::loop {

inline constexpr int64_t kCountMax = int64_t{1} << 40;

// root[key]; null where there is none.
const Json& child(const Json& map, std::string_view key);

Status read_optimizer(const YamlDocument& document, OptimizerRecipe& out);
// `map`: the section `ema`, or a stage's.
Status read_ema(const YamlDocument& document, const Json& map, const std::string& path,
                EmaRecipe& out);
Status read_diffusion(const YamlDocument& document, DiffusionRecipe& out);
Status read_guard(const YamlDocument& document, GuardRecipe& out);
// `recipe.data` has been read.
Status read_evaluation(const YamlDocument& document, Recipe& recipe);
Status read_sampling(const YamlDocument& document, const DiffusionRecipe& diffusion,
                     SamplingRecipe& out);
Status read_checkpoint(const YamlDocument& document, CheckpointRecipe& out);

}  // namespace yard::loop
