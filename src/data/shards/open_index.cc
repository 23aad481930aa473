#include <fmt/format.h>

#include <array>

#include "base/log.h"
#include "shards/shard_index.h"
#include "shards/shard_reader.h"
#include "shards/sidecar.h"
#include "shards/tar_scanner.h"

namespace yard::shards {
namespace {

// A damaged index cannot ask for more.
constexpr uint64_t kIndexBytesMax = uint64_t{4} << 30;

// How many of the first, middle and last sample are what the index says.
size_t count_fitting(storage::ObjectStore& store, const OpenedIndex& opened) {
  const uint64_t count = opened.index.sample_count();
  if (count == 0) return 0;
  const ShardReader reader(store, opened);
  std::vector<std::byte> buffer;
  size_t fitting = 0;
  for (const uint64_t sample : {uint64_t{0}, count / 2, count - 1})
    if (reader.read(sample, opened.index.members(sample), buffer)) ++fitting;
  return fitting;
}

// Whether an index made for another etag describes this shard all the same. Every later read is
// checked against its checksum, so this need not prove it, only tell a copy from another shard.
bool fits(storage::ObjectStore& store, const OpenedIndex& opened) {
  return count_fitting(store, opened) == 3;
}

Result<OpenedIndex> scan(storage::ObjectStore& store, std::string_view shard_key,
                         IndexSource source) {
  YARD_ASSIGN(const TarScanner scanner, TarScanner::open(store, shard_key));
  if (scanner.compression() != TarCompression::kNone)
    return Error{
        Code::kInvalidArgument,
        fmt::format("{}/{}: compressed as a whole with {}, so that no sample can be read in "
                    "its place; 'yard shards repack' makes shards of it that can",
                    store.url(), shard_key, to_string(scanner.compression()))};
  YARD_ASSIGN(ScannedShard scanned, scan_shard(store, shard_key));
  return OpenedIndex{std::move(scanned.index), std::move(scanned.shard), source};
}

}  // namespace

Result<std::optional<ShardIndex>> read_sidecar(storage::ObjectStore& store,
                                               std::string_view shard_key) {
  const std::string key = index_key(shard_key);
  auto bytes = storage::get_all(store, key, kIndexBytesMax);
  if (!bytes && bytes.error().code == Code::kNotFound) return std::optional<ShardIndex>();
  if (!bytes) return std::move(bytes).error();
  YARD_ASSIGN(ShardIndex index, ShardIndex::decode(*bytes, fmt::format("{}/{}", store.url(), key)));
  return std::optional(std::move(index));
}

Result<std::optional<ShardIndex>> sidecar_of(storage::ObjectStore& store,
                                             const storage::ObjectInfo& shard) {
  YARD_ASSIGN(auto index, read_sidecar(store, shard.key));
  if (!index || index->shard_size_bytes() != shard.size_bytes) return std::optional<ShardIndex>();
  if (index->shard_etag() == shard.etag) return index;
  OpenedIndex opened{*std::move(index), shard};
  if (count_fitting(store, opened) == 0) return std::optional<ShardIndex>();
  return std::optional(std::move(opened.index));
}

Result<uint64_t> read_sample_count(storage::ObjectStore& store, std::string_view shard_key) {
  const std::string key = index_key(shard_key);
  std::array<std::byte, ShardIndex::kHeadBytes> head;
  YARD_TRY(store.get_range(key, "", 0, head));
  return ShardIndex::decode_sample_count({reinterpret_cast<const char*>(head.data()), head.size()},
                                         fmt::format("{}/{}", store.url(), key));
}

Result<OpenedIndex> open_index(storage::ObjectStore& store, std::string_view shard_key) {
  YARD_ASSIGN(auto index, read_sidecar(store, shard_key));
  if (!index) {
    log_info("{}/{} has no index beside it; reading it once to make one", store.url(), shard_key);
    return scan(store, shard_key, IndexSource::kMissing);
  }
  YARD_ASSIGN(storage::ObjectInfo shard, store.head(shard_key));
  OpenedIndex opened{*std::move(index), std::move(shard), IndexSource::kSidecar};
  const bool same_size = opened.index.shard_size_bytes() == opened.shard.size_bytes;
  const bool same_etag = opened.index.shard_etag() == opened.shard.etag;
  if (same_size && (same_etag || fits(store, opened))) return opened;
  log_warning(
      "{}/{} changed since its index was made; reading it anew ('yard shards index' "
      "replaces the index)",
      store.url(), shard_key);
  return scan(store, shard_key, IndexSource::kStale);
}

Result<ScannedShard> index_of(storage::ObjectStore& store, std::string_view shard_key,
                              ScanOptions options) {
  YARD_ASSIGN(const TarScanner scanner, TarScanner::open(store, shard_key));
  const bool is_plain = scanner.compression() == TarCompression::kNone;
  if (is_plain && !options.on_bad && !options.group_by_key) {
    YARD_ASSIGN(OpenedIndex opened, open_index(store, shard_key));
    return ScannedShard{.index = std::move(opened.index), .shard = std::move(opened.shard)};
  }
  std::optional<ShardIndex> sidecar;
  if (is_plain) {
    YARD_ASSIGN(sidecar, sidecar_of(store, scanner.shard()));
  }
  options.expected = sidecar ? &*sidecar : nullptr;
  return scan_shard(store, shard_key, options);
}

}  // namespace yard::shards
