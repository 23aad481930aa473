// An index as anyone may have written it beside a shard: decoded with the checksum it has and with
// the right one; whatever passes must be read without leaving the shard.
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/crc32c.h"
#include "base/result.h"
#include "shards/shard_index.h"
#include "shards/shard_reader.h"
#include "storage/memory_store.h"

namespace {

using namespace yard;

void read_through(const std::string& bytes) {
  auto index = shards::ShardIndex::decode(bytes, "fuzz");
  if (!index) {
    YARD_CHECK(index.error().code == Code::kCorrupt);
    return;
  }
  const auto again = shards::ShardIndex::decode(index->encode(), "fuzz");
  YARD_CHECK(again && again->same_content(*index) && again->encode() == index->encode());
  for (uint64_t i = 0; i < index->sample_count(); ++i) {
    (void)index->key(i);
    YARD_CHECK(!index->members(i).empty());
    for (const auto& member : index->members(i)) {
      (void)index->member_name(i, member);
      YARD_CHECK(member.offset + member.size_bytes <= index->shard_size_bytes());
      YARD_CHECK(index->find(i, index->extension(member)) != nullptr);
      const auto picture = index->picture_size(i, member);
      YARD_CHECK(!picture || (picture->width > 0 && picture->height > 0));
    }
  }
  // A shard of the size it says, where that is small enough to have one.
  constexpr uint64_t kShardBytesMax = 64 << 10;
  if (index->shard_size_bytes() > kShardBytesMax) return;
  storage::MemoryStore store;
  YARD_CHECK(storage::put_text(store, "s.tar", std::string(index->shard_size_bytes(), 'x')));
  YARD_CHECK(storage::put_text(store, "s.tar.idx", bytes));
  auto opened = shards::open_index(store, "s.tar");
  if (!opened) return;
  const shards::ShardReader reader(store, *std::move(opened));
  std::vector<std::byte> buffer;
  for (uint64_t i = 0; i < reader.index().sample_count(); ++i)
    (void)reader.read(i, reader.index().members(i), buffer);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr size_t kChecksumAt = 12, kChecksummedFrom = 16;
  std::string bytes(reinterpret_cast<const char*>(data), size);
  read_through(bytes);
  if (bytes.size() < kChecksummedFrom) return 0;
  const char version = bytes[8] % 2 == 0 ? '\2' : '\1';
  bytes.replace(0, kChecksumAt, std::string("YARDIDX\n") + version + std::string(3, '\0'));
  const uint32_t checksum = crc32c(std::as_bytes(std::span(bytes).subspan(kChecksummedFrom)));
  for (int i = 0; i < 4; ++i) bytes[kChecksumAt + size_t(i)] = char(checksum >> (8 * i));
  read_through(bytes);
  return 0;
}
