// Which sample a member of a shard belongs to: WebDataset's rule, exactly.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace yard::shards {

struct SampleName {
  std::string_view key;        // "a/b" of "a/b.seg.PNG"
  std::string_view extension;  // "seg.PNG", as it is written
};

// The name up to the first dot of its last part, and what follows that dot. nullopt for members
// that belong to no sample: without a dot, or under a name like "__meta__". A last part that
// begins with a dot is an extension of its folder: ("a/", "hidden") of "a/.hidden".
std::optional<SampleName> split_member_name(std::string_view name);

// Extensions are compared in lower case (ASCII letters only).
std::string to_lower(std::string_view text);

}  // namespace yard::shards
