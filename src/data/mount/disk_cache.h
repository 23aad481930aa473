// DiskCache: blocks of objects kept in a local folder, each with its checksum.
//
// Layout of the folder, one pair of files for each version of an object:
//   NAME.data   the object's bytes at their own offsets, with holes where there is nothing
//   NAME.sums   a head that names store, key, ETag and size, then 8 bytes for each block of 64 KiB:
//               its CRC32C and that number once more, XORed with a mark; zeros: the block is not
//               there
// Nothing is synced: after a crash a block either has its checksum or does not count. A folder
// belongs to one mount at a time (a lock).
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "mount/object_version.h"
#include "telemetry/counters.h"

namespace yard::mount {

struct DiskCacheOptions {
  std::string folder;
  uint64_t size_bytes_max = uint64_t{10} << 30;
};

// Thread-safe. A disk that is full or fails makes the cache useless, never a read wrong: it then
// says so once in the log and keeps nothing more.
class DiskCache {
 public:
  // Makes the folder. kUnavailable: another mount uses it. `store_url` is part of the keys' names.
  static Result<std::unique_ptr<DiskCache>> open(DiskCacheOptions options, std::string store_url,
                                                 CounterRegistry& counters);
  ~DiskCache();

  // All of the range, each of its blocks verified, or false. A block that is not what was written
  // is told in the log and forgotten.
  bool read(const ObjectVersion& version, uint64_t offset, std::span<std::byte> out);
  // Keeps the blocks that lie whole in the range, of objects of at most half the cache's size.
  void write(const ObjectVersion& version, uint64_t offset, std::span<const std::byte> bytes);

  // The data file, when every block of the object is there; all of them are verified, once for as
  // long as the file is not touched. May read the whole file.
  std::optional<UniqueFd> whole_file(const ObjectVersion& version);

  uint64_t size_bytes() const;

 private:
  struct Entry;
  using EntryPointer = std::shared_ptr<Entry>;

  DiskCache(DiskCacheOptions options, std::string store_url, CounterRegistry& counters);
  Status load();
  EntryPointer entry_of(const ObjectVersion& version, bool make);
  EntryPointer open_entry(const std::string& name, const ObjectVersion& version, bool make);
  bool read_blocks(Entry& entry, uint64_t offset, std::span<std::byte> out);
  void forget_block(Entry& entry, uint64_t block);
  void note_use(const std::string& name, uint64_t more_bytes);
  void evict();
  void disable(const std::string& why);
  std::string head_of(const ObjectVersion& version) const;

  const DiskCacheOptions options_;
  const std::string store_url_;
  Counter& read_bytes_;
  Counter& bad_blocks_;
  UniqueFd lock_;
  mutable std::mutex mutex_;
  struct Kept {
    uint64_t size_bytes = 0;
    std::list<std::string>::iterator recent;
    std::weak_ptr<Entry> entry;
  };
  std::unordered_map<std::string, Kept> kept_;  // by name
  std::list<std::string> recent_;               // newest first
  std::list<EntryPointer> open_;                // newest first, bounded
  uint64_t size_bytes_ = 0;
  bool is_disabled_ = false;
};

}  // namespace yard::mount
