// FolderNames: the sorted names of a folder, and a cache of those that a listing stopped in, so
// that its next page neither reads nor sorts them again.
#pragma once

#include <sys/stat.h>

#include <chrono>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace yard::storage {

// In byte order. A folder's name ends in '/', so that sorting names sorts whole keys. Immutable.
class FolderNames {
 public:
  explicit FolderNames(std::vector<std::string> names);

  size_t size() const { return names_.size(); }
  std::string_view operator[](size_t index) const { return names_[index]; }
  // The first name that is greater than `after`, or is a folder that `after` is in.
  size_t position_behind(std::string_view after) const;
  size_t memory_bytes() const { return text_.size() + names_.size() * sizeof(std::string_view); }

 private:
  std::string text_;
  std::vector<std::string_view> names_;  // in text_
};

// What a folder's stat() says when names come or go. Pure data.
struct FolderStamp {
  uint64_t device = 0;
  uint64_t inode = 0;
  int64_t mtime_ns = 0;
  int64_t ctime_ns = 0;
  bool operator==(const FolderStamp&) const = default;

  static FolderStamp of(const struct stat& info);
};

// Thread-safe. Holds at most `memory_bytes_max`, dropping what was not used for longest.
class FolderCache {
 public:
  // settle: folders are stamped by the kernel's tick, 10 ms at most; file servers may be coarser.
  explicit FolderCache(size_t memory_bytes_max = size_t{128} << 20,
                       std::chrono::nanoseconds settle = std::chrono::seconds(2))
      : memory_bytes_max_(memory_bytes_max), settle_(settle) {}

  // Whether a change of the folder from `now` on is certain to give it another stamp.
  bool is_settled(const FolderStamp& stamp, std::chrono::system_clock::time_point now) const;

  // Null when it is not there, or was read in another state.
  std::shared_ptr<const FolderNames> find(const std::string& folder, const FolderStamp& stamp);
  void keep(const std::string& folder, const FolderStamp& stamp,
            std::shared_ptr<const FolderNames> names);
  void drop(const std::string& folder);  // its end was reached
  size_t memory_bytes() const;

 private:
  struct Kept {
    std::string folder;
    FolderStamp stamp;
    std::shared_ptr<const FolderNames> names;
  };
  void drop_locked(const std::string& folder);

  const size_t memory_bytes_max_;
  const std::chrono::nanoseconds settle_;
  mutable std::mutex mutex_;
  std::list<Kept> kept_;  // the latest first
  size_t memory_bytes_ = 0;
};

}  // namespace yard::storage
