// The manifest of yard shards pack: one JSON object a line for each sample, see
// docs/formats/shard-index.md.
//
//   {"key": "cats/7", "files": {"jpg": "raw/7.jpg", "txt": "s3://b/7.txt"}, "json": {"w": 512}}
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace yard::shards {

struct ManifestSample {
  std::string key;
  std::vector<std::pair<std::string, std::string>> files;  // extension and URL or path
  std::vector<std::pair<std::string, std::string>> texts;  // extension and content
};

// Members come in the order of their extensions. kInvalidArgument, with `what`: not JSON, an
// unknown key (the nearest known one named), a wrong type, an extension twice, no member at all.
Result<ManifestSample> parse_manifest_line(std::string_view line, std::string_view what);

}  // namespace yard::shards
