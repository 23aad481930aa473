// A YAML document as JSON values that remember their lines. The one seam to yaml-cpp.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace yard::loop {

// Pure data. A value's path is its keys and indices joined by dots: "stages.0.steps".
struct YamlDocument {
  std::string name;  // for messages: "birds.yaml"
  Json root;
  std::map<std::string, int> lines;  // 1-based; values set by apply_override() have none

  // "birds.yaml:12" or, where there is no line, "birds.yaml".
  std::string where(const std::string& path) const;
};

// Plain scalars become null, booleans, integers or numbers as YAML's core schema says, everything
// else a string. kInvalidArgument: not YAML, a key given twice, more than 100,000 values or 32
// levels (aliases count as what they stand for).
Result<YamlDocument> parse_yaml(std::string_view text, std::string_view name);

// "stages.vae.steps=10": sets one value, its text YAML. Items of a list are named by index or by
// the value of their key `name`. Keys of maps may be new, lists do not grow. kInvalidArgument.
Status apply_override(YamlDocument& document, std::string_view assignment);

}  // namespace yard::loop
