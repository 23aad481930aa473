// DownloadCache: the files that a host has downloaded, for the next job, or the next attempt, on
// it.
//
// A file counts only while nobody has touched it since: its inode, size and times of change are
// those of the moment it was there whole. Whoever takes it gets the file itself, no copy.
#pragma once

#include <cstdint>
#include <ctime>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "base/result.h"

namespace yard::channels {

// Thread-safe.
class DownloadCache {
 public:
  // `path` was downloaded whole from the version `etag` of `url`.
  void note(const std::string& url, const std::string& etag, const std::string& path);
  // Moves the file of that version to `path`, whose folder exists, and notes it there. False: there
  // is none, or it was changed.
  bool take(const std::string& url, const std::string& etag, const std::string& path);
  // Moves all files that are unchanged into `folder`, which is made, and forgets the others. They
  // must lie on one file system. Nobody takes any meanwhile.
  Status move_to(const std::string& folder);
  // `from` was renamed to `to`: the files below are still known.
  void rebase(const std::string& from, const std::string& to);
  size_t size() const;

 private:
  struct File {
    std::string path;
    std::string etag;
    uint64_t device = 0;
    uint64_t inode = 0;
    uint64_t size_bytes = 0;
    timespec modified = {};
    timespec changed = {};
  };
  static std::optional<File> look(const std::string& path);
  static bool is_unchanged(const File& file);

  mutable std::mutex mutex_;
  std::multimap<std::string, File> files_;  // by URL
  uint64_t number_ = 0;
};

}  // namespace yard::channels
