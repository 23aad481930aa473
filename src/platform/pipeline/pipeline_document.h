// A YAML document as JSON, and keys of it set from the command line.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace yard::pipeline {

// Plain scalars become null, booleans or numbers where they are such, quoted ones stay texts.
// kInvalidArgument with `what` and the line: not YAML, or nested deeper than 32.
Result<Json> json_of_yaml(const std::string& yaml, std::string_view what);

// "steps.small.hosts=2": a path with dots, a list's item by its index or its `name`; the value is
// YAML. kInvalidArgument: no '=', or a path that leads nowhere; a map's new key is made.
Status set_value(Json& document, const std::string& assignment);

}  // namespace yard::pipeline
