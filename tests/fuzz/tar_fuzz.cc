// A shard as anyone may have written it, plain or compressed: scanned strictly, with what is bad in
// it left out, and streamed; what is read must lie in the shard and be whole.
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>

#include "base/crc32c.h"
#include "base/result.h"
#include "shards/sample_name.h"
#include "shards/sample_stream.h"
#include "shards/shard_index.h"
#include "shards/shard_reader.h"
#include "shards/tar_input_internal.h"
#include "storage/memory_store.h"

namespace {

using namespace yard;

void check_index(const shards::ScannedShard& scanned, uint64_t archive_bytes_max) {
  std::set<std::string> keys;
  for (uint64_t i = 0; i < scanned.index.sample_count(); ++i) {
    YARD_CHECK(keys.emplace(scanned.index.key(i)).second);
    YARD_CHECK(!scanned.index.members(i).empty());
    for (const auto& member : scanned.index.members(i)) {
      YARD_CHECK(member.offset <= archive_bytes_max &&
                 member.size_bytes <= archive_bytes_max - member.offset);
      const std::string name = scanned.index.member_name(i, member);
      YARD_CHECK(shards::split_member_name(name)->key == scanned.index.key(i));
      YARD_CHECK(!name.starts_with('/') && name.find("/../") == name.npos);
    }
  }
}

// The samples that a stream gives are those of the scan, content by content.
uint64_t count_streamed(storage::ObjectStore& store, const shards::SampleStreamOptions& options) {
  auto stream = shards::SampleStream::open(store, "s.tar", options);
  YARD_CHECK(stream);
  for (uint64_t count = 0;; ++count) {
    const auto sample = stream->next();
    YARD_CHECK(sample);
    if (!*sample) return count;
    YARD_CHECK(!(*sample)->members.empty());
  }
}

constexpr uint64_t kUnpackedMax = uint64_t{256} << 10;

// A few bytes of zstd stand for megabytes, and to go through them again and again finds nothing
// new: it made the target a hundred times slower.
bool unpacks_to_little(storage::ObjectStore& store) {
  auto input = shards::TarInput::open(store, *store.head("s.tar"));
  if (!input) return true;
  for (uint64_t at = 0; at <= kUnpackedMax;) {
    const auto window = (*input)->window(at, shards::kTarWindowBytes);
    if (!window || window->empty()) return true;
    at += window->size();
  }
  return false;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  storage::MemoryStore store;
  const auto bytes = std::as_bytes(std::span(data, size));
  YARD_CHECK(store.put("s.tar", bytes, {}));
  if (!unpacks_to_little(store)) return 0;

  const auto strict = shards::scan_shard(store, "s.tar");
  if (strict)
    check_index(*strict,
                strict->compression == shards::TarCompression::kNone ? size : kUnpackedMax);
  const shards::BadSampleSink skip = [](const shards::BadSample& bad) -> Status {
    YARD_CHECK(!bad.reason.empty());
    return Ok{};
  };
  for (const bool by_key : {false, true}) {
    const auto scanned =
        shards::scan_shard(store, "s.tar", {.group_by_key = by_key, .on_bad = skip});
    if (!scanned) {
      YARD_CHECK(!strict);
      continue;
    }
    check_index(*scanned,
                scanned->compression == shards::TarCompression::kNone ? size : kUnpackedMax);
    if (strict && !by_key) YARD_CHECK(strict->index.same_content(scanned->index));
    YARD_CHECK(count_streamed(store, {.group_by_key = by_key, .on_bad = skip}) ==
               scanned->index.sample_count());
  }
  if (!strict || strict->compression != shards::TarCompression::kNone) return 0;
  YARD_CHECK(count_streamed(store, {}) == strict->index.sample_count());
  const auto decoded = shards::ShardIndex::decode(strict->index.encode(), "fuzz");
  YARD_CHECK(decoded && decoded->same_content(strict->index));
  const auto reader = shards::ShardReader::open(store, "s.tar");
  YARD_CHECK(reader);
  std::vector<std::byte> buffer;
  for (uint64_t i = 0; i < reader->index().sample_count(); ++i)
    YARD_CHECK(reader->read(i, reader->index().members(i), buffer));
  return 0;
}

// Most changes break a header's checksum, so that nothing behind it is reached: it is mended.
extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned int seed) {
  size = LLVMFuzzerMutate(data, size, max_size);
  if (seed % 8 == 0) return size;
  for (size_t at = 0; at + 512 <= size; at += 512) {
    uint8_t* const header = data + at;
    if (header[257] != 'u' || header[258] != 's') continue;
    unsigned sum = 8 * ' ';
    for (size_t i = 0; i < 512; ++i) sum += i >= 148 && i < 156 ? 0 : header[i];
    for (int digit = 5; digit >= 0; --digit, sum >>= 3)
      header[148 + digit] = static_cast<uint8_t>('0' + (sum & 7));
    header[154] = 0;
    header[155] = ' ';
  }
  return size;
}
