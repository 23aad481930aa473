// TarScanner: the regular members of a tar in a store, from front to back, in bounded memory.
//
// Reads POSIX ustar and pax, and GNU's long names; archives compressed as a whole with gzip or zstd
// are unpacked on the way. Refused by name are sparse members and parts of multi-volume archives:
// their bytes do not lie in the shard as they are.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "shards/tar_header.h"
#include "storage/object_store.h"

namespace yard::shards {

enum class TarCompression { kNone, kGzip, kZstd };
std::string_view to_string(TarCompression compression);

struct TarMember {
  std::string name;
  uint64_t offset = 0;  // of its content in the archive, unpacked where that is compressed
  uint64_t size_bytes = 0;
};

// A stretch of the archive that gives no member.
struct TarDamage {
  std::string member;  // that lies there; empty when that is not known
  uint64_t offset = 0;
  uint64_t size_bytes = 0;  // 0 when only the end of the archive is missing
  std::string reason;
  bool is_behind_end = false;  // behind the archive's end mark, hence no sample's loss
};

class TarInput;

// Not thread-safe. Directories, links and devices are passed over, as WebDataset does.
class TarScanner {
 public:
  // Pins the shard's version. `store` must outlive the scanner.
  static Result<TarScanner> open(storage::ObjectStore& store, std::string_view key);
  TarScanner(TarScanner&&) noexcept;
  ~TarScanner();

  // The next member, nullopt past the last. kCorrupt, with shard, offset and member: truncated,
  // a wrong checksum, an absolute name or one with "..", or bytes after the end of the archive.
  // kInvalidArgument: not a tar, or a kind that is refused. After an Error the scanner is spent,
  // unless skip_damage() says otherwise.
  Result<std::optional<TarMember>> next();

  // The content of the member that next() gave last, piece by piece; call at most once. Stops at
  // the sink's Error, and is spent then.
  using Sink = std::function<Status(std::span<const std::byte>)>;
  Status read_content(const Sink& sink);

  // After an Error of the two above: where the archive is to blame, what it names is left out and
  // next() goes on at the next sound header, or at the end. nullopt where the store failed, or
  // there is no tar at all.
  Result<std::optional<TarDamage>> skip_damage();

  const storage::ObjectInfo& shard() const { return shard_; }
  TarCompression compression() const;
  uint64_t link_count() const { return link_count_; }  // hard and symbolic links passed over

 private:
  TarScanner(storage::ObjectStore& store, storage::ObjectInfo shard,
             std::unique_ptr<TarInput> input);

  // What 'x' and 'L' headers said of the member that follows them.
  struct Extension {
    std::optional<std::string> name;
    std::optional<uint64_t> size_bytes;
    bool is_sparse = false;
  };
  Result<std::optional<TarHeader>> read_header();
  // Takes the header in when it extends the following member; true then.
  Result<bool> extend(const TarHeader& header, Extension& extension);
  Status extend_by_pax(const std::string& content, bool is_global, Extension& extension);
  Result<std::string> read_text(uint64_t size_bytes);
  // Passes over the content. kCorrupt when it does not end inside the archive.
  Status enclose(const TarHeader& header);
  Status check_end();
  // Whether the member that next() gave last lies in the archive wholly; unpacks it.
  Status check_last_member();
  Result<std::span<const std::byte>> window(uint64_t offset, uint64_t size_bytes);
  Result<uint64_t> next_sound_header(uint64_t offset);
  Error not_a_tar() const;
  Error fail(Code code, std::string_view message) const;
  // fail(), where the member is known and next() could go on behind it.
  Error fail_member(Code code, std::string_view member, std::string_view message);
  Error fail_header(std::string_view message);

  storage::ObjectStore* store_;
  storage::ObjectInfo shard_;
  std::unique_ptr<TarInput> input_;
  uint64_t start_offset_ = 0;   // of the member's first header, extensions included
  uint64_t header_offset_ = 0;  // of the header that is being read; for messages
  uint64_t offset_ = 0;         // of the next header
  TarMember member_;
  bool is_member_unread_ = false;
  bool is_ended_ = false;
  std::optional<TarDamage> damage_;
  uint64_t link_count_ = 0;
};

}  // namespace yard::shards
