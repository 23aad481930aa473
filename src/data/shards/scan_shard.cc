#include <fmt/format.h>

#include "base/crc32c.h"
#include "shards/member_picture_internal.h"
#include "shards/sample_groups.h"
#include "shards/shard_index.h"
#include "shards/tar_scanner.h"

namespace yard::shards {
namespace {

// Members in shard order, as an index has them; asked for in that order too.
class ExpectedMembers {
 public:
  explicit ExpectedMembers(const ShardIndex* index) : index_(index) {}

  // Empty when the content is as the index says, or the index knows no member there.
  std::string compare(const TarMember& member, uint32_t checksum) {
    if (index_ == nullptr) return {};
    for (; sample_ < index_->sample_count(); ++sample_, next_ = 0) {
      const auto members = index_->members(sample_);
      while (next_ < members.size() && members[next_].offset < member.offset) ++next_;
      if (next_ == members.size()) continue;
      if (members[next_].offset != member.offset) return {};
      if (members[next_].size_bytes == member.size_bytes && members[next_].crc32c == checksum)
        return {};
      return fmt::format("the content of member '{}' is not that of the shard's index",
                         member.name);
    }
    return {};
  }

 private:
  const ShardIndex* index_;
  uint64_t sample_ = 0;
  size_t next_ = 0;
};

class Scan {
 public:
  Scan(TarScanner scanner, std::string url, const ScanOptions& options)
      : scanner_(std::move(scanner)), url_(std::move(url)), options_(options) {}

  Result<ScannedShard> run() {
    YARD_TRY(read_members());
    const auto groups = group_members(members_, gaps_, options_.group_by_key);
    ScannedShard scanned{.shard = scanner_.shard(), .link_count = scanner_.link_count()};
    scanned.compression = scanner_.compression();
    YARD_TRY(tell_lost_bytes(scanned.bad_count));
    ShardIndexBuilder builder;
    for (const SampleGroup& group : groups) {
      if (group.why_bad.empty()) {
        YARD_TRY(add(group, builder));
        continue;
      }
      ++scanned.bad_count;
      YARD_TRY(tell(group));
    }
    scanned.index = builder.finish(scanner_.shard());
    return scanned;
  }

 private:
  Status read_members() {
    ExpectedMembers expected(scanner_.compression() == TarCompression::kNone ? options_.expected
                                                                             : nullptr);
    for (;;) {
      auto member = scanner_.next();
      if (member && !*member) return Ok{};
      uint32_t checksum = 0;
      MemberPicture picture(member ? std::string_view((*member)->name) : std::string_view());
      Status read = member ? scanner_.read_content([&](std::span<const std::byte> piece) -> Status {
        checksum = crc32c(piece, checksum);
        picture.take(piece);
        return Ok{};
      })
                           : Status(member.error());
      if (!read) {
        YARD_TRY(skip(read.error()));
        continue;
      }
      const TarMember& found = **member;
      members_.push_back({found.name, found.offset, found.size_bytes, checksum,
                          expected.compare(found, checksum), picture.size()});
    }
  }

  Status skip(const Error& error) {
    if (!options_.on_bad) return error;
    YARD_ASSIGN(auto damage, scanner_.skip_damage());
    if (!damage) return error;
    gaps_.push_back({members_.size(), *std::move(damage)});
    return Ok{};
  }

  // What no sample's name is known of.
  Status tell_lost_bytes(uint64_t& bad_count) {
    for (const auto& [index, damage] : gaps_) {
      if (!damage.member.empty()) continue;
      ++bad_count;
      YARD_TRY(options_.on_bad({.shard = url_,
                                .offset = damage.offset,
                                .reason = damage.reason,
                                .bytes = {{"", damage.offset, damage.size_bytes}}}));
    }
    return Ok{};
  }

  Status tell(const SampleGroup& group) const {
    // A damage's reason names shard and offset already.
    const std::string reason =
        group.why_bad.find(url_) != std::string::npos
            ? group.why_bad
            : fmt::format("{}: offset {}: {}", url_, group.bad_offset, group.why_bad);
    if (!options_.on_bad) return Error{Code::kCorrupt, reason};
    BadSample bad{.shard = url_, .key = group.key, .offset = group.bad_offset, .reason = reason};
    for (const size_t i : group.members)
      bad.bytes.push_back({members_[i].name, members_[i].offset, members_[i].size_bytes});
    for (const auto& [index, damage] : gaps_)
      if (damage.reason == group.why_bad)
        bad.bytes.push_back({damage.member, damage.offset, damage.size_bytes});
    return options_.on_bad(bad);
  }

  Status add(const SampleGroup& group, ShardIndexBuilder& builder) const {
    for (const size_t i : group.members)
      YARD_TRY(builder.add(members_[i].name, members_[i].offset, members_[i].size_bytes,
                           members_[i].crc32c, members_[i].picture));
    return Ok{};
  }

  TarScanner scanner_;
  const std::string url_;
  const ScanOptions& options_;
  std::vector<ScannedMember> members_;
  std::vector<MemberGap> gaps_;
};

}  // namespace

Result<ScannedShard> scan_shard(storage::ObjectStore& store, std::string_view shard_key,
                                const ScanOptions& options) {
  YARD_ASSIGN(TarScanner scanner, TarScanner::open(store, shard_key));
  return Scan(std::move(scanner), fmt::format("{}/{}", store.url(), shard_key), options).run();
}

}  // namespace yard::shards
