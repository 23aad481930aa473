// ShardReader: any sample of a shard by one ranged read, every byte checked.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shards/shard_index.h"
#include "storage/object_store.h"

namespace yard::shards {

// Thread-safe: reading changes nothing.
class ShardReader {
 public:
  // A sample's members are read at once, so their bytes together have a limit.
  static constexpr uint64_t kReadBytesMax = uint64_t{1} << 30;

  // Opens the shard and its index, see open_index(). `store` must outlive the reader.
  static Result<ShardReader> open(storage::ObjectStore& store, std::string_view shard_key);
  ShardReader(storage::ObjectStore& store, OpenedIndex opened);

  const ShardIndex& index() const { return opened_.index; }
  const storage::ObjectInfo& shard() const { return opened_.shard; }
  IndexSource index_source() const { return opened_.source; }

  // The contents of `wanted`, members of that sample in shard order, as views into `buffer`, which
  // grows as needed. kCorrupt, naming shard, offset and member: the shard changed, or a checksum is
  // wrong. kExhausted: more than kReadBytesMax from the first wanted byte to the last.
  using Contents = std::vector<std::span<const std::byte>>;
  Result<Contents> read(uint64_t sample, std::span<const ShardIndex::Member> wanted,
                        std::vector<std::byte>& buffer) const;

  // For readers that fetch several samples at once: bytes of the shard, not verified; and the
  // contents of a sample's members, verified, out of bytes that begin with the first of them.
  Status read_range(uint64_t offset, std::span<std::byte> out) const;
  Result<Contents> slice(uint64_t sample, std::span<const ShardIndex::Member> wanted,
                         std::span<const std::byte> bytes) const;

  // The first bytes of one member, which are not verified: for what only looks at a header.
  Status read_front(const ShardIndex::Member& member, uint64_t size_bytes,
                    std::vector<std::byte>& buffer) const;

  // "file:///data/a.tar: offset 512: sample 'x'": where a sample is, for messages.
  std::string where(uint64_t sample) const;

 private:
  storage::ObjectStore* store_;
  OpenedIndex opened_;
};

}  // namespace yard::shards
