#include "shards/shard_reader.h"

#include <fmt/format.h>

#include "base/crc32c.h"

namespace yard::shards {

Result<ShardReader> ShardReader::open(storage::ObjectStore& store, std::string_view shard_key) {
  YARD_ASSIGN(OpenedIndex opened, open_index(store, shard_key));
  return ShardReader(store, std::move(opened));
}

ShardReader::ShardReader(storage::ObjectStore& store, OpenedIndex opened)
    : store_(&store), opened_(std::move(opened)) {}

std::string ShardReader::where(uint64_t sample) const {
  return fmt::format("{}/{}: offset {}: sample '{}'", store_->url(), opened_.shard.key,
                     index().members(sample).front().offset, index().key(sample));
}

Result<ShardReader::Contents> ShardReader::read(uint64_t sample,
                                                std::span<const ShardIndex::Member> wanted,
                                                std::vector<std::byte>& buffer) const {
  YARD_CHECK(!wanted.empty());
  const uint64_t begin = wanted.front().offset;
  const uint64_t size_bytes = wanted.back().offset + wanted.back().size_bytes - begin;
  if (size_bytes > kReadBytesMax)
    return Error{Code::kExhausted, fmt::format("{}: {} bytes, more than the limit of {}",
                                               where(sample), size_bytes, kReadBytesMax)};
  if (buffer.size() < size_bytes) buffer.resize(size_bytes);
  const auto range = std::span(buffer).first(size_bytes);
  YARD_TRY(read_range(begin, range));
  return slice(sample, wanted, range);
}

Status ShardReader::read_range(uint64_t offset, std::span<std::byte> out) const {
  return store_->get_range(opened_.shard.key, opened_.shard.etag, offset, out);
}

Result<ShardReader::Contents> ShardReader::slice(uint64_t sample,
                                                 std::span<const ShardIndex::Member> wanted,
                                                 std::span<const std::byte> bytes) const {
  Contents contents;
  for (const ShardIndex::Member& member : wanted) {
    contents.push_back(bytes.subspan(member.offset - wanted.front().offset, member.size_bytes));
    if (crc32c(contents.back()) != member.crc32c)
      return Error{Code::kCorrupt, fmt::format("{}: the checksum of member '{}' is wrong",
                                               where(sample), index().member_name(sample, member))};
  }
  return contents;
}

Status ShardReader::read_front(const ShardIndex::Member& member, uint64_t size_bytes,
                               std::vector<std::byte>& buffer) const {
  YARD_CHECK(size_bytes <= member.size_bytes);
  if (buffer.size() < size_bytes) buffer.resize(size_bytes);
  return read_range(member.offset, std::span(buffer).first(size_bytes));
}

}  // namespace yard::shards
