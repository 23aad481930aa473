// KeyWalk: the keys of a bucket in byte order, folder by folder, so that a listing can stop after
// any key and go on there.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "gateway/bucket.h"

namespace yard::gateway {

// The state of a folder when it was read: as long as it is the same, so are the names in it.
struct FolderState {
  uint64_t inode = 0;
  int64_t mtime_ns = 0;
  int64_t ctime_ns = 0;
  bool operator==(const FolderState&) const = default;
};

struct FolderContent {
  // Of files, and of folders with a '/' at their end; plain ones and those of odd keys together, in
  // byte order.
  std::vector<std::string> names;
  std::optional<FolderState> plain_state;
  std::optional<FolderState> odd_state;
  // False: something changed so shortly before that the kernel's clock might not tell a further
  // change from it.
  bool is_settled = true;
};
// Reads the folder `folder` ("" or "a/b/"): the names of keys, or of folders of keys, that start
// with `prefix` and are greater than `after`.
FolderContent read_folder(const Bucket& bucket, const std::string& folder, std::string_view prefix,
                          std::string_view after, Clock::Wall now);
// Whether any object lies under the folder, however deep.
bool holds_object(const Bucket& bucket, const std::string& folder);

// Not thread-safe. The names of a folder are read once, when the walk enters it.
class KeyWalk {
 public:
  // Keys that start with `prefix` and are greater than `after`. `clock` outlives it.
  KeyWalk(std::string prefix, std::string after, const Clock& clock);

  struct Next {
    std::string key;  // ends in '/' and is_folder: all keys that start with it
    bool is_folder = false;
  };
  // The next key or folder; nothing at the end. The bucket is the same, opened anew or not.
  std::optional<Next> peek(const Bucket& bucket);
  void enter(const Bucket& bucket);        // the folder that peek() gave
  void pass();                             // what peek() gave, with all that is under it
  void pass_all(std::string_view prefix);  // every key that starts with it

  // Whether the folders that the walk is inside of are as they were when it read them.
  bool is_current(const Bucket& bucket) const;
  size_t memory_bytes() const { return memory_bytes_; }

 private:
  struct Frame {
    std::string folder;
    FolderContent content;
    size_t at = 0;
  };
  void push(const Bucket& bucket, std::string folder);
  void pop();

  const Clock* clock_;
  std::string prefix_;
  std::string after_;
  std::vector<Frame> frames_;
  size_t memory_bytes_ = 0;
  bool has_begun_ = false;
};

}  // namespace yard::gateway
