// Lister: pages of a bucket's keys, as ListObjects gives them.
//
// A listing's walk is kept between its pages, so that a folder of a million names is read once and
// not for each page. A page is nevertheless as of its own time: before a kept walk goes on, the
// folders that it is inside of are looked at, and read anew when names came or went. Objects are
// looked up when they are listed.
#pragma once

#include <cstdint>
#include <list>
#include <mutex>
#include <string>
#include <vector>

#include "gateway/bucket.h"
#include "gateway/key_walk.h"

namespace yard::gateway {

struct ListQuery {
  std::string prefix;
  std::string delimiter;  // empty: none
  // Keys greater than this; when it is itself a common prefix, greater than all keys under it.
  std::string after;
  uint32_t entry_count_max = 1000;  // objects and common prefixes together
};

struct ListedObject {
  std::string key;
  uint64_t size_bytes = 0;
  std::string etag;
  std::chrono::system_clock::time_point modified;
  std::optional<ObjectChecksum> checksum;
};

struct ListedPage {
  std::vector<ListedObject> objects;         // in byte order of their keys
  std::vector<std::string> common_prefixes;  // in byte order
  bool is_truncated = false;
  std::string last;  // the `after` of the next page
};

// Thread-safe. Keeps walks of at most `memory_bytes_max` in all, dropping those unused for longest.
class Lister {
 public:
  // `clock` outlives it.
  explicit Lister(const Clock& clock, size_t memory_bytes_max = size_t{128} << 20)
      : clock_(clock), memory_bytes_max_(memory_bytes_max) {}

  S3Result<ListedPage> list(const Bucket& bucket, const ListQuery& query);
  size_t kept_bytes() const;
  size_t kept_count() const;
  uint64_t begun_count() const;  // walks begun anew, not continued

 private:
  struct Kept {
    std::string name;  // of bucket, prefix, delimiter and position
    KeyWalk walk;
  };
  KeyWalk begin(const ListQuery& query);
  std::optional<KeyWalk> take(const std::string& name);
  void keep(std::string name, KeyWalk walk);

  const Clock& clock_;
  const size_t memory_bytes_max_;
  mutable std::mutex mutex_;
  std::list<Kept> kept_;  // the latest first
  size_t kept_bytes_ = 0;
  uint64_t begun_count_ = 0;
};

}  // namespace yard::gateway
