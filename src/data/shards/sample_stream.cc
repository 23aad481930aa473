#include "shards/sample_stream.h"

#include <fmt/format.h>

#include <unordered_map>
#include <unordered_set>

#include "base/crc32c.h"
#include "shards/sample_name.h"
#include "shards/sidecar.h"
#include "shards/tar_scanner.h"

namespace yard::shards {
struct SampleStream::Impl {
  // Where a member that is to come belongs.
  struct Place {
    uint64_t sample;
    uint32_t crc32c;
  };
  struct Pending {
    StreamedSample sample;
    size_t missing_count = 0;
  };

  std::string url() const { return fmt::format("{}/{}", store->url(), scanner.shard().key); }
  Error corrupt(uint64_t offset, std::string_view why) const {
    return {Code::kCorrupt, fmt::format("{}: offset {}: {}", url(), offset, why)};
  }

  void expect(const ShardIndex& index) {
    for (uint64_t sample = 0; sample < index.sample_count(); ++sample)
      for (const auto& member : index.members(sample))
        places.emplace(member.offset, Place{sample, member.crc32c});
  }

  // The member's content, checked against what is known of it.
  Result<StreamedSample::Member> read(const TarMember& member, std::string_view extension) {
    held_bytes += member.size_bytes;
    if (held_bytes > held_bytes_max)
      return Error{Code::kExhausted,
                   fmt::format("{}: offset {}: member '{}': more than the limit of {} bytes held",
                               url(), member.offset, member.name, held_bytes_max)};
    StreamedSample::Member read{member.name, std::string(extension), {}};
    YARD_TRY(scanner.read_content([&](std::span<const std::byte> piece) -> Status {
      read.content.insert(read.content.end(), piece.begin(), piece.end());
      return Ok{};
    }));
    const auto place = places.find(member.offset);
    if (place != places.end() && crc32c(read.content) != place->second.crc32c)
      return corrupt(
          member.offset,
          fmt::format("the content of member '{}' is not that of the shard's index", member.name));
    return read;
  }

  // Without a scan before: the next run of members of one key.
  Result<std::optional<StreamedSample>> next_in_order() {
    std::optional<StreamedSample> sample = std::move(begun);
    begun.reset();
    for (;;) {
      YARD_ASSIGN(const auto member, scanner.next());
      if (!member) return sample;
      const auto name = split_member_name(member->name);
      if (!name) continue;
      const bool is_same = sample && sample->key == name->key;
      if (!is_same && !keys.emplace(name->key).second)
        return corrupt(member->offset,
                       fmt::format("member '{}' belongs to a sample of which others came before, "
                                   "but members of another lie between them",
                                   member->name));
      if (!is_same) held_bytes = 0;
      YARD_ASSIGN(StreamedSample::Member read, read(*member, name->extension));
      if (is_same) {
        YARD_TRY(check_extension(*sample, read, member->offset));
        sample->members.push_back(std::move(read));
        continue;
      }
      StreamedSample next{std::string(name->key), member->offset, {}};
      next.members.push_back(std::move(read));
      if (sample) {
        begun = std::move(next);
        return sample;
      }
      sample = std::move(next);
    }
  }

  Status check_extension(const StreamedSample& sample, const StreamedSample::Member& member,
                         uint64_t offset) const {
    for (const auto& other : sample.members)
      if (to_lower(other.extension) == to_lower(member.extension))
        return corrupt(offset, fmt::format("members '{}' and '{}' are one and the same of their "
                                           "sample",
                                           other.name, member.name));
    return Ok{};
  }

  // After a scan: only its members count, and a sample is whole when all of them came.
  Result<std::optional<StreamedSample>> next_scanned() {
    while (given_count < scanned->index.sample_count()) {
      auto member = scanner.next();
      if (!member) {
        // The scan told of it.
        YARD_ASSIGN(const auto damage, scanner.skip_damage());
        if (!damage) return std::move(member).error();
        continue;
      }
      if (!*member) return Error{Code::kCorrupt, url() + ": changed while it was read"};
      const auto place = places.find((*member)->offset);
      const auto name = split_member_name((*member)->name);
      if (place == places.end() || !name) continue;
      const uint64_t sample = place->second.sample;
      YARD_ASSIGN(StreamedSample::Member read, read(**member, name->extension));
      const auto [it, is_new] = pending.try_emplace(sample);
      if (is_new)
        it->second = {{std::string(name->key), (*member)->offset, {}},
                      scanned->index.members(sample).size()};
      it->second.sample.members.push_back(std::move(read));
      if (--it->second.missing_count > 0) continue;
      StreamedSample whole = std::move(it->second.sample);
      pending.erase(it);
      for (const auto& part : whole.members) held_bytes -= part.content.size();
      ++given_count;
      return std::optional(std::move(whole));
    }
    return std::optional<StreamedSample>();
  }

  storage::ObjectStore* store;
  TarScanner scanner;
  uint64_t held_bytes_max;
  std::optional<ScannedShard> scanned;
  std::unordered_map<uint64_t, Place> places;  // by offset
  uint64_t held_bytes = 0;
  std::unordered_set<std::string> keys;
  std::optional<StreamedSample> begun;
  std::unordered_map<uint64_t, Pending> pending;  // by number of the sample
  uint64_t given_count = 0;
};

Result<SampleStream> SampleStream::open(storage::ObjectStore& store, std::string_view shard_key,
                                        const SampleStreamOptions& options) {
  YARD_ASSIGN(TarScanner scanner, TarScanner::open(store, shard_key));
  std::optional<ShardIndex> sidecar;
  if (scanner.compression() == TarCompression::kNone) {
    YARD_ASSIGN(sidecar, sidecar_of(store, scanner.shard()));
  }
  if (options.group_by_key || options.on_bad) {
    YARD_ASSIGN(ScannedShard scanned, scan_shard(store, shard_key,
                                                 {.group_by_key = options.group_by_key,
                                                  .on_bad = options.on_bad,
                                                  .expected = sidecar ? &*sidecar : nullptr}));
    return open(store, std::move(scanned), options.held_bytes_max);
  }
  auto impl =
      std::unique_ptr<Impl>(new Impl{&store, std::move(scanner), options.held_bytes_max, {}});
  if (sidecar) impl->expect(*sidecar);
  return SampleStream(std::move(impl));
}

Result<SampleStream> SampleStream::open(storage::ObjectStore& store, ScannedShard scanned,
                                        uint64_t held_bytes_max) {
  YARD_ASSIGN(TarScanner scanner, TarScanner::open(store, scanned.shard.key));
  if (scanner.shard().etag != scanned.shard.etag)
    return Error{Code::kCorrupt,
                 fmt::format("{}/{}: changed while it was read", store.url(), scanned.shard.key)};
  auto impl = std::unique_ptr<Impl>(
      new Impl{&store, std::move(scanner), held_bytes_max, std::move(scanned)});
  impl->expect(impl->scanned->index);
  return SampleStream(std::move(impl));
}

SampleStream::SampleStream(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
SampleStream::SampleStream(SampleStream&&) noexcept = default;
SampleStream::~SampleStream() = default;

Result<std::optional<StreamedSample>> SampleStream::next() {
  return impl_->scanned ? impl_->next_scanned() : impl_->next_in_order();
}

}  // namespace yard::shards
