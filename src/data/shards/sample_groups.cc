#include "shards/sample_groups.h"

#include <fmt/format.h>

#include <unordered_map>

#include "shards/sample_name.h"

namespace yard::shards {
namespace {

// A damaged extension header leaves the name that the next header has room for.
constexpr size_t kHeaderNameBytes = 100;
constexpr size_t kNone = SIZE_MAX;

class Grouping {
 public:
  Grouping(std::span<const ScannedMember> members, bool by_key)
      : members_(members), by_key_(by_key) {}

  void add(size_t index) {
    const ScannedMember& member = members_[index];
    const auto name = split_member_name(member.name);
    if (!name) return;
    const auto [it, is_new] = groups_by_key_.emplace(name->key, groups_.size());
    if (is_new) groups_.push_back({std::string(name->key)});
    SampleGroup& group = groups_[it->second];
    const bool is_apart = !by_key_ && !group.members.empty() && last_ != it->second;
    if (is_apart)
      spoil(group, member.offset,
            fmt::format("members '{}' and '{}' belong to one sample, but members of another "
                        "lie between them",
                        members_[group.members.front()].name, member.name));
    if (last_ != it->second && suspect_count_ > 0) suspect(group, member);
    // Between two members of one sample nothing of another can have been lost.
    if (last_ == it->second) suspect_count_ = 0;
    check_extension(group, index, name->extension);
    if (!member.why_bad.empty()) spoil(group, member.offset, member.why_bad);
    group.members.push_back(index);
    last_ = it->second;
  }

  void add(const TarDamage& damage) {
    if (damage.is_behind_end) return;
    const auto name = split_member_name(damage.member);
    if (!damage.member.empty() && !name) return;
    if (name) {
      const auto [it, is_new] = groups_by_key_.emplace(name->key, groups_.size());
      if (is_new) groups_.push_back({std::string(name->key)});
      return spoil(groups_[it->second], damage.offset, damage.reason);
    }
    suspicion_ = fmt::format("a member of it may have been lost: {}", damage.reason);
    suspect_count_ = 1;
    is_behind_gap_ = true;
    if (last_ != kNone) spoil(groups_[last_], damage.offset, suspicion_);
  }

  std::vector<SampleGroup> take() { return std::move(groups_); }

 private:
  static void spoil(SampleGroup& group, uint64_t offset, std::string_view why) {
    if (!group.why_bad.empty()) return;
    group.why_bad = why;
    group.bad_offset = offset;
  }

  // The first group behind a gap; the second too when the first may have half a name.
  void suspect(SampleGroup& group, const ScannedMember& member) {
    spoil(group, member.offset, suspicion_);
    const bool may_be_cut = is_behind_gap_ && member.name.size() >= kHeaderNameBytes;
    if (!may_be_cut) --suspect_count_;
    is_behind_gap_ = false;
  }

  void check_extension(SampleGroup& group, size_t index, std::string_view extension) {
    for (const size_t other : group.members) {
      const auto name = split_member_name(members_[other].name);
      if (to_lower(name->extension) == to_lower(extension))
        spoil(group, members_[index].offset,
              fmt::format("members '{}' and '{}' are one and the same of their sample",
                          members_[other].name, members_[index].name));
    }
  }

  const std::span<const ScannedMember> members_;
  const bool by_key_;
  std::vector<SampleGroup> groups_;
  std::unordered_map<std::string, size_t> groups_by_key_;
  size_t last_ = kNone;  // group of the member before
  std::string suspicion_;
  int suspect_count_ = 0;  // groups to begin that may lack members
  bool is_behind_gap_ = false;
};

}  // namespace

std::vector<SampleGroup> group_members(std::span<const ScannedMember> members,
                                       std::span<const MemberGap> gaps, bool by_key) {
  Grouping grouping(members, by_key);
  size_t gap = 0;
  for (size_t i = 0; i <= members.size(); ++i) {
    for (; gap < gaps.size() && gaps[gap].member_index == i; ++gap) grouping.add(gaps[gap].damage);
    if (i < members.size()) grouping.add(i);
  }
  return grouping.take();
}

}  // namespace yard::shards
