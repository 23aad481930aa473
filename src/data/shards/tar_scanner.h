// TarScanner: the regular members of a tar in a store, from front to back, in bounded memory.
//
// Reads POSIX ustar and pax, and GNU's long names. Refused by name are sparse members, parts of
// multi-volume archives and compressed archives: their bytes do not lie in the shard as they are.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "shards/tar_header.h"
#include "storage/object_store.h"

namespace yard::shards {

struct TarMember {
  std::string name;
  uint64_t offset = 0;  // of its content in the shard
  uint64_t size_bytes = 0;
};

// Not thread-safe. Directories, links and devices are passed over, as WebDataset does.
class TarScanner {
 public:
  // Pins the shard's version. `store` must outlive the scanner.
  static Result<TarScanner> open(storage::ObjectStore& store, std::string_view key);

  // The next member, nullopt past the last. kCorrupt, with shard, offset and member: truncated,
  // a wrong checksum, an absolute name or one with "..", or bytes after the end of the archive.
  // kInvalidArgument: not a tar, or a kind that is refused. After an Error the scanner is spent.
  Result<std::optional<TarMember>> next();

  // The content of the member that next() gave last, piece by piece. Stops at the sink's Error.
  using Sink = std::function<Status(std::span<const std::byte>)>;
  Status read_content(const Sink& sink);

  const storage::ObjectInfo& shard() const { return shard_; }
  uint64_t link_count() const { return link_count_; }  // hard and symbolic links passed over

 private:
  TarScanner(storage::ObjectStore& store, storage::ObjectInfo shard)
      : store_(&store), shard_(std::move(shard)) {}

  // What 'x' and 'L' headers said of the member that follows them.
  struct Extension {
    std::optional<std::string> name;
    std::optional<uint64_t> size_bytes;
  };
  Result<std::optional<TarHeader>> read_header();
  // Takes the header in when it extends the following member; true then.
  Result<bool> extend(const TarHeader& header, Extension& extension);
  Status extend_by_pax(const std::string& content, bool is_global, Extension& extension);
  Result<std::string> read_text(uint64_t size_bytes);
  Status check_end();
  Status check_name(const std::string& name) const;
  Result<std::span<const std::byte>> window(uint64_t offset, uint64_t size_bytes);
  Error not_a_tar(std::span<const std::byte> block) const;
  Error fail(Code code, std::string_view message) const;

  storage::ObjectStore* store_;
  storage::ObjectInfo shard_;
  uint64_t header_offset_ = 0;  // of the header that is being read; for messages
  uint64_t offset_ = 0;         // of the next header
  TarMember member_;
  uint64_t link_count_ = 0;
  std::vector<std::byte> buffer_;  // bytes [buffer_offset_, +size) of the shard
  uint64_t buffer_offset_ = 0;
};

}  // namespace yard::shards
