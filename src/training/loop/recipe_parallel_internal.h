// The section `parallel` of a recipe.
#pragma once

#include "base/json.h"
#include "base/result.h"
#include "loop/recipe.h"
#include "loop/yaml_document.h"

namespace yard::loop {

// Reads `map` into `recipe.parallel`; `recipe.precision` has been read. kInvalidArgument: see
// parse_recipe().
Status read_parallel(const YamlDocument& document, const Json& map, Recipe& recipe);

}  // namespace yard::loop
