// TarInput: the bytes of an archive from front to back, unpacked where the whole archive is
// compressed, in bounded memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "shards/tar_scanner.h"
#include "storage/object_store.h"

namespace yard::shards {

// No read asks for more at once.
inline constexpr uint64_t kTarWindowBytes = uint64_t{1} << 20;

// Not thread-safe.
class TarInput {
 public:
  // Looks at the first bytes. `store` must outlive the input. kInvalidArgument: compressed in a way
  // that is not read, or not at all a tar by its size.
  static Result<std::unique_ptr<TarInput>> open(storage::ObjectStore& store,
                                                const storage::ObjectInfo& shard);
  virtual ~TarInput() = default;

  // The bytes [offset, offset + size_bytes), fewer where the archive ends: a view that holds until
  // the next call. size_bytes <= kTarWindowBytes; no offset lies before that of the call before.
  // kCorrupt: the compressed bytes are damaged or cut.
  virtual Result<std::span<const std::byte>> window(uint64_t offset, uint64_t size_bytes) = 0;
  // Of the archive; nullopt where only unpacking it tells.
  virtual std::optional<uint64_t> size_bytes() const = 0;
  virtual TarCompression compression() const = 0;
  // Whether window() failed because of what the archive holds, not because of the store.
  virtual bool is_damaged() const { return false; }
};

}  // namespace yard::shards
