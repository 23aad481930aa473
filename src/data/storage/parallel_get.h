// Reading one large object by several ranged requests at once, all of one version.
//
// Part size: each request should flow for eight times as long as its first byte takes to come, so
// that latency costs an eighth at most: 8 x latency x rate of one stream, as the store measured
// them (StoreSpeed), 8 MiB before it has. It is a power of two from 1 to 32 MiB, and no more than
// the object or the memory divided by 16, so that many parts can be under way. How many are:
// transfer_pool.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "net/checksums.h"
#include "storage/object_store.h"
#include "storage/transfer_pool.h"

namespace yard::storage {

// Pure; see above.
uint64_t choose_part_bytes(const StoreSpeed& speed, uint64_t object_bytes, uint64_t memory_bytes);

// The checksum of a whole object out of those of its parts, which come in any order. Thread-safe.
class PartChecksums {
 public:
  // checksum: ObjectInfo::checksum. Of others than CRCs nothing can be joined: then is_usable() is
  // false and the rest does nothing.
  explicit PartChecksums(std::string_view checksum);

  bool is_usable() const { return algorithm_.has_value(); }
  void add(uint64_t offset, std::span<const std::byte> part);
  // A part whose bytes come in pieces, one of start()'s for each.
  Checksum start() const { return Checksum(*algorithm_); }  // contract: is_usable()
  void add(uint64_t offset, uint64_t size_bytes, const Checksum& of_part);
  // kCorrupt, with `name`, unless the parts are those of the checksum. All of them must be there.
  Status check(std::string_view name) const;

 private:
  struct Part {
    uint64_t size_bytes;
    std::string digest;
  };
  std::optional<ChecksumAlgorithm> algorithm_;
  std::string expected_;  // digest
  mutable std::mutex mutex_;
  std::map<uint64_t, Part> parts_;
};

// The bytes [offset, offset + out.size()) into `out`. The whole object is verified against
// info.checksum where there is one. Errors as get_range(); after one, `out` counts for nothing.
Status parallel_get(ObjectStore& store, const ObjectInfo& info, uint64_t offset,
                    std::span<std::byte> out, const TransferOptions& options = {});

// The whole object in order, through memory_bytes_max of buffers: `sink` is called in the caller's
// thread with one piece after the other; its error ends the reading. kCorrupt comes after the last
// piece where only the checksum of the whole is wrong: what was given to `sink` must not count
// before Ok.
Status read_in_order(ObjectStore& store, const ObjectInfo& info,
                     const std::function<Status(std::span<const std::byte>)>& sink,
                     const TransferOptions& options = {});

}  // namespace yard::storage
