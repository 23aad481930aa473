// What is open in a mount.
#pragma once

#include <sys/stat.h>

#include "mount/fuse_files_internal.h"

namespace yard::mount {

struct stat stat_of(const Attributes& attributes);

struct FuseFiles::OpenFile {
  ObjectVersion version;
  uint64_t inode = 0;
  uint64_t parent = 0;
  std::shared_ptr<Content::Handle> handle;
  bool is_passthrough = false;
};

// A number's files are all read through the page cache or all through the backing file; the kernel
// refuses a mixture.
struct FuseFiles::Backed {
  int cached_open_count = 0;
  int passthrough_open_count = 0;
  int backing_id = 0;
};

// A place in the stream of a directory's entries. Entry 0 is ".", 1 is "..".
struct FuseFiles::OpenDirectory {
  uint64_t inode = 0;
  std::string key;
  std::mutex mutex;
  Listing::PagePointer page;
  uint64_t page_begin = 2;  // number of the page's first entry
};

}  // namespace yard::mount
