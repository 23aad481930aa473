// PartialFile: a file being received in parts, in any order, under a hidden name beside its own. It
// takes its place when all of it is there, and goes on where it was broken off.
//
// The hidden file has the content's size, and behind it what is needed to go on: which version of
// what is received (see Identity), the size of a part, and one byte for each part that arrived. A
// part's byte is written after the part, so that a killed process leaves a true record; a crashed
// machine need not, so a record of an earlier boot is not believed.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/result.h"

namespace yard::transfer {

// Hidden names end so; listings of folders leave them out.
inline constexpr std::string_view kPartialSuffix = ".yard-part";

// "/dir/.name.yard-part" of "/dir/name"; a name too long for that is cut and hashed. Pure.
std::string partial_path(const std::string& path);

// kInvalidArgument "... already exists", as of ObjectStore's PutOptions::if_absent.
Error already_exists_error(const std::string& path);

// What works on parts is thread-safe, the rest is not.
class PartialFile {
 public:
  struct Identity {
    std::string source;  // URL and etag: what is received
    uint64_t size_bytes = 0;
    uint64_t part_bytes = 0;  // a power of two; a record with another one wins
  };
  // Opens or makes the hidden file; `boot_id` as current_boot_id(). A record of something else is
  // dropped. kUnavailable: another process receives the same file at this moment; kExhausted: more
  // than 2^50 bytes; errno_error for the rest.
  static Result<PartialFile> open(const std::string& path, Identity identity,
                                  const std::string& boot_id);
  PartialFile(PartialFile&& other) noexcept = default;
  // Leaves the hidden file; to be gone on with when it has a record of parts.
  ~PartialFile();

  uint64_t part_bytes() const { return identity_.part_bytes; }
  size_t part_count() const { return arrived_.size(); }
  bool has_part(size_t index) const { return arrived_[index] != 0; }
  uint64_t part_size_bytes(size_t index) const;
  uint64_t part_offset(size_t index) const { return index * identity_.part_bytes; }

  // `position` within the part; what was written there before is replaced.
  Status write(size_t index, uint64_t position, std::span<const std::byte> bytes) const;
  Status read(size_t index, uint64_t position, std::span<std::byte> out) const;
  Status mark_part(size_t index);  // all of it was written

  struct FinishOptions {
    std::chrono::system_clock::time_point modified{};  // of the file; the epoch: now
    bool sync = false;                                 // wait for the disk
    bool if_absent = false;                            // already_exists_error() for a taken name
  };
  // Gives the file its name, replacing what had it unless `if_absent`. Contract: all parts are
  // there.
  Status finish(const FinishOptions& options);
  void discard();  // removes the hidden file

 private:
  PartialFile(std::string path, std::string hidden, Identity identity, UniqueFd fd)
      : path_(std::move(path)),
        hidden_(std::move(hidden)),
        identity_(std::move(identity)),
        fd_(std::move(fd)) {}

  Status start(const std::string& boot_id);
  bool resume(const std::string& boot_id);
  std::string header(const std::string& boot_id) const;
  size_t count_parts() const;
  Status write_at(uint64_t offset, std::span<const std::byte> bytes) const;

  std::string path_;
  std::string hidden_;
  Identity identity_;
  UniqueFd fd_;
  uint64_t record_offset_ = 0;  // of the parts' bytes
  std::vector<char> arrived_;
};

// The kernel's name for the time since the machine started; empty where it has none.
std::string current_boot_id();

}  // namespace yard::transfer
