// OpenFiles: files of a directory store that parts are read of again and again, kept open, for
// opening and closing one costs more than reading a small part.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>

#include "base/file.h"

namespace yard::storage {

// Thread-safe. Holds a few files, the ones read last.
class OpenFiles {
 public:
  // Reads a part of the version `etag`. False: it is not open, or not as it was (removed, replaced,
  // written to), or reading failed; to be found out by opening it. `out` is of no use then.
  bool read(std::string_view key, std::string_view etag, uint64_t offset, std::span<std::byte> out);
  // After a part of `part_bytes` was read of `file`, whose version `etag` is: keeps it where it is
  // worth it.
  void keep(std::string_view key, std::string_view etag, const struct stat& info,
            uint64_t part_bytes, UniqueFd file);

  // Once it was replaced or removed: its room on the disk is free then.
  void forget(std::string_view key);

 private:
  struct Version {
    uint64_t inode = 0;
    int64_t size_bytes = 0;
    timespec modified = {};
    static Version of(const struct stat& info) { return {info.st_ino, info.st_size, info.st_mtim}; }
    bool is(const struct stat& info) const;
  };
  struct Open {
    std::string key;
    std::string etag;
    Version version;
    std::shared_ptr<const UniqueFd> file;
  };
  bool find(std::string_view key, std::string_view etag, Open& found);
  void drop(const Open& open);

  std::mutex mutex_;
  std::list<Open> open_;  // the one read last first
};

}  // namespace yard::storage
