// Members of a shard into samples, by WebDataset's rule, with everything that is wrong with them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "images/view.h"
#include "shards/tar_scanner.h"

namespace yard::shards {

struct ScannedMember {
  std::string name;
  uint64_t offset = 0;
  uint64_t size_bytes = 0;
  uint32_t crc32c = 0;
  std::string why_bad;  // empty: its content is as it should be
  std::optional<images::Size> picture;
};

// Something that gives no member, between two of the list.
struct MemberGap {
  size_t member_index = 0;  // of the member that follows it
  TarDamage damage;
};

struct SampleGroup {
  std::string key;
  std::vector<size_t> members;  // indexes, in shard order; may be empty of a bad one
  std::string why_bad;          // empty: it is whole
  uint64_t bad_offset = 0;      // where that shows
};

// Pure. Samples in the order of their first members; those that belong to none are left out.
// Bad are two members with one extension, and, unless `by_key`, members of another sample in
// between. A gap of which the member is known spoils that member's sample; any other may have
// swallowed a member of the sample before it or after it, so both are bad: no half sample passes.
std::vector<SampleGroup> group_members(std::span<const ScannedMember> members,
                                       std::span<const MemberGap> gaps, bool by_key);

}  // namespace yard::shards
