#include "shards/sample_name.h"

#include <algorithm>

namespace yard::shards {
namespace {

bool is_meta(std::string_view name) {
  const std::string_view first = name.substr(0, name.find('/'));
  return first.size() >= 4 && first.starts_with("__") && first.ends_with("__");
}

}  // namespace

std::optional<SampleName> split_member_name(std::string_view name) {
  if (is_meta(name)) return std::nullopt;
  const size_t last = name.rfind('/') + 1;  // 0 without a slash
  const size_t dot = name.find('.', last);
  if (dot == name.npos) return std::nullopt;
  if (dot == last) {
    if (last == 0) return std::nullopt;
    // WebDataset's pattern then takes the folder for the key, provided that its own last part has
    // no dot.
    const std::string_view folder = name.substr(0, last - 1);
    if (folder.find('.', folder.rfind('/') + 1) != folder.npos) return std::nullopt;
  }
  return SampleName{name.substr(0, dot), name.substr(dot + 1)};
}

std::string to_lower(std::string_view text) {
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(),
                         [](char c) { return c >= 'A' && c <= 'Z' ? char(c + ('a' - 'A')) : c; });
  return lower;
}

}  // namespace yard::shards
