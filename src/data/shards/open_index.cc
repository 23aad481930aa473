#include <fmt/format.h>

#include <array>

#include "base/crc32c.h"
#include "base/log.h"
#include "shards/shard_index.h"
#include "shards/shard_reader.h"
#include "shards/tar_scanner.h"

namespace yard::shards {
namespace {

// A damaged index cannot ask for more.
constexpr uint64_t kIndexBytesMax = uint64_t{4} << 30;

Result<uint32_t> checksum_of_content(TarScanner& scanner) {
  uint32_t checksum = 0;
  YARD_TRY(scanner.read_content([&](std::span<const std::byte> piece) -> Status {
    checksum = crc32c(piece, checksum);
    return Ok{};
  }));
  return checksum;
}

// Whether an index made for another etag describes this shard all the same. Every later read is
// checked against its checksum, so this need not prove it, only tell a copy from another shard.
bool fits(storage::ObjectStore& store, const OpenedIndex& opened) {
  const uint64_t count = opened.index.sample_count();
  if (count == 0) return false;
  const ShardReader reader(store, opened);
  std::vector<std::byte> buffer;
  for (const uint64_t sample : {uint64_t{0}, count / 2, count - 1})
    if (!reader.read(sample, opened.index.members(sample), buffer)) return false;
  return true;
}

Result<OpenedIndex> scan(storage::ObjectStore& store, std::string_view shard_key,
                         IndexSource source) {
  YARD_ASSIGN(ScannedShard scanned, scan_shard(store, shard_key));
  return OpenedIndex{std::move(scanned.index), std::move(scanned.shard), source};
}

}  // namespace

Result<ScannedShard> scan_shard(storage::ObjectStore& store, std::string_view shard_key) {
  YARD_ASSIGN(TarScanner scanner, TarScanner::open(store, shard_key));
  ShardIndexBuilder builder;
  while (true) {
    YARD_ASSIGN(const auto member, scanner.next());
    if (!member) break;
    YARD_ASSIGN(const uint32_t checksum, checksum_of_content(scanner));
    auto added = builder.add(member->name, member->offset, member->size_bytes, checksum);
    if (!added)
      return std::move(added).error().while_(
          fmt::format("{}/{}: offset {}", store.url(), shard_key, member->offset));
  }
  return ScannedShard{builder.finish(scanner.shard()), scanner.shard(), scanner.link_count()};
}

Result<uint64_t> read_sample_count(storage::ObjectStore& store, std::string_view shard_key) {
  const std::string key = index_key(shard_key);
  std::array<std::byte, ShardIndex::kHeadBytes> head;
  YARD_TRY(store.get_range(key, "", 0, head));
  return ShardIndex::decode_sample_count({reinterpret_cast<const char*>(head.data()), head.size()},
                                         fmt::format("{}/{}", store.url(), key));
}

Result<OpenedIndex> open_index(storage::ObjectStore& store, std::string_view shard_key) {
  const std::string key = index_key(shard_key);
  auto bytes = storage::get_all(store, key, kIndexBytesMax);
  if (!bytes && bytes.error().code != Code::kNotFound) return std::move(bytes).error();
  if (!bytes) {
    log_info("{}/{} has no index beside it; reading it once to make one", store.url(), shard_key);
    return scan(store, shard_key, IndexSource::kMissing);
  }
  YARD_ASSIGN(ShardIndex index, ShardIndex::decode(*bytes, fmt::format("{}/{}", store.url(), key)));
  YARD_ASSIGN(storage::ObjectInfo shard, store.head(shard_key));
  OpenedIndex opened{std::move(index), std::move(shard), IndexSource::kSidecar};
  const bool same_size = opened.index.shard_size_bytes() == opened.shard.size_bytes;
  const bool same_etag = opened.index.shard_etag() == opened.shard.etag;
  if (same_size && (same_etag || fits(store, opened))) return opened;
  log_warning(
      "{}/{} changed since its index was made; reading it anew ('yard shards index' "
      "replaces the index)",
      store.url(), shard_key);
  return scan(store, shard_key, IndexSource::kStale);
}

}  // namespace yard::shards
