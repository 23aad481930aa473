// ShardIndex: where every member of a shard lies, its checksum, and of a picture its size. Kept
// beside the shard as "<shard>.idx"; docs/formats/shard-index.md has the byte layout.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "images/view.h"
#include "shards/bad_sample.h"
#include "shards/tar_scanner.h"
#include "storage/object_store.h"

namespace yard::shards {

class ByteReader;

// Immutable once built or decoded, hence thread-safe. Samples are in the order of the shard.
class ShardIndex {
 public:
  struct Member {
    uint64_t offset = 0;  // of its content in the shard
    uint64_t size_bytes = 0;
    uint32_t crc32c = 0;     // of its content
    uint32_t extension = 0;  // number, see extension()
    bool operator==(const Member&) const = default;
  };

  uint64_t sample_count() const { return samples_.size(); }
  std::string_view key(uint64_t sample) const;
  std::span<const Member> members(uint64_t sample) const;  // in shard order, never empty
  std::string_view extension(const Member& member) const;  // in lower case
  std::string member_name(uint64_t sample, const Member& member) const;  // as in the shard
  // The sample's member of that lower-case extension; nullptr when there is none.
  const Member* find(uint64_t sample, std::string_view extension) const;
  // What images::PictureSizeFinder made of its content; nullopt: nothing, or the index is of the
  // first version. `member` is one of members(sample). Only advice: no checksum covers it.
  std::optional<images::Size> picture_size(uint64_t sample, const Member& member) const;

  uint64_t shard_size_bytes() const { return shard_size_bytes_; }
  const std::string& shard_etag() const { return shard_etag_; }
  uint64_t memory_bytes() const;  // about what it holds
  // Whether both describe the same bytes; the etag is the store's and does not count, nor does a
  // picture's size that only one of them knows.
  bool same_content(const ShardIndex& other) const;

  std::string encode() const;
  // kCorrupt, naming `name`: damaged, truncated, of another version or no index at all.
  static Result<ShardIndex> decode(std::string_view bytes, std::string_view name);
  // sample_count() out of the first bytes alone; kCorrupt as decode().
  static constexpr size_t kHeadBytes = 56;
  static Result<uint64_t> decode_sample_count(std::string_view head, std::string_view name);

 private:
  friend class ShardIndexBuilder;
  struct Sample {
    uint64_t key_end = 0;     // in keys_; it begins where the one before ends
    uint64_t member_end = 0;  // in members_
    bool operator==(const Sample&) const = default;
  };
  uint64_t key_begin(uint64_t sample) const {
    return sample == 0 ? 0 : samples_[sample - 1].key_end;
  }
  uint64_t member_begin(uint64_t sample) const {
    return sample == 0 ? 0 : samples_[sample - 1].member_end;
  }
  bool is_consistent() const;
  bool has_same_pictures(const ShardIndex& other) const;
  std::vector<uint8_t> picture_extensions() const;
  void encode_pictures(std::string& body) const;
  bool decode_pictures(ByteReader& in);
  void fill_lower_extensions();

  uint64_t shard_size_bytes_ = 0;
  std::string shard_etag_;
  std::string keys_;
  std::vector<Sample> samples_;
  std::vector<Member> members_;
  std::vector<images::Size> pictures_;   // of each member, 0 x 0: not known; empty: none is
  std::vector<std::string> extensions_;  // as written in the shard
  std::vector<std::string> lower_extensions_;
};

// Groups members into samples as WebDataset does, on the way through a shard. Not thread-safe.
class ShardIndexBuilder {
 public:
  // Members come in shard order; those that belong to no sample are left out. kCorrupt, naming the
  // members: two of one sample with the same extension, or with another sample between them.
  Status add(std::string_view member_name, uint64_t offset, uint64_t size_bytes, uint32_t crc32c,
             std::optional<images::Size> picture = std::nullopt);
  uint64_t member_count() const { return index_.members_.size(); }
  uint64_t sample_count() const { return index_.samples_.size(); }
  ShardIndex finish(const storage::ObjectInfo& shard);

 private:
  Status start_sample(std::string_view key, std::string_view member_name);
  uint32_t extension_number(std::string_view extension);

  ShardIndex index_;
  std::unordered_map<std::string, std::string> first_members_;  // by key
  std::unordered_map<std::string, uint32_t> extension_numbers_;
};

// "a/b-000000.tar.idx" of "a/b-000000.tar".
std::string index_key(std::string_view shard_key);
bool is_index_key(std::string_view key);

// How many samples a shard has, by the first bytes of its sidecar, which is not verified otherwise.
// kNotFound: it has none; kCorrupt: no index of this version.
Result<uint64_t> read_sample_count(storage::ObjectStore& store, std::string_view shard_key);

// Reads the whole shard, checks its form and computes every checksum.
struct ScannedShard {
  ShardIndex index;
  storage::ObjectInfo shard;
  uint64_t link_count = 0;  // hard and symbolic links, which no sample can have
  uint64_t bad_count = 0;   // samples left out
  // Offsets are those of the unpacked archive: nothing can be read in its place then.
  TarCompression compression = TarCompression::kNone;
};
struct ScanOptions {
  // Members of a sample may have others between them. The index then serves this process alone:
  // encode() would write what decode() refuses.
  bool group_by_key = false;
  BadSampleSink on_bad;
  // What the contents should be; nullptr: whatever they are. Of a compressed shard it is nothing.
  const ShardIndex* expected = nullptr;
};
// kCorrupt, naming shard, offset and member: see TarScanner, ShardIndexBuilder and, with
// `expected`, a content of another checksum; where options.on_bad is given it is told instead.
// kInvalidArgument: not a tar.
Result<ScannedShard> scan_shard(storage::ObjectStore& store, std::string_view shard_key,
                                const ScanOptions& options = {});

enum class IndexSource { kSidecar, kMissing, kStale };  // the last two: the shard was scanned

struct OpenedIndex {
  ShardIndex index;
  storage::ObjectInfo shard;  // pins the version that the index describes
  IndexSource source = IndexSource::kSidecar;
};
// The sidecar, when it describes the shard as it is now: same size and etag; or, as a copied shard
// has another etag, same size and the content of its first, middle and last sample. A missing or
// stale sidecar is told in the log and the shard scanned instead; nothing is written. kCorrupt: the
// sidecar is damaged, or the shard is. kInvalidArgument: the shard is compressed as a whole, so
// that no sample can be read in its place.
Result<OpenedIndex> open_index(storage::ObjectStore& store, std::string_view shard_key);

}  // namespace yard::shards
