// What the files of a directory store share.
#pragma once

#include <sys/stat.h>

#include <string>
#include <string_view>

#include "storage/beneath.h"
#include "storage/directory_store.h"
#include "storage/object_store.h"

namespace yard::storage {

std::string etag_of(const struct stat& file);
ObjectInfo info_of(std::string_view key, const struct stat& file);

// The directory of a store, for list_directory(). All outlive the call.
struct ListedDirectory {
  int root_fd;
  const std::string& root;
  FolderCache& cache;
  const DirectoryStore::LeftOut& left_out;  // may be empty: then the log is told
};
// list() of a directory store.
Result<ListPage> list_directory(const ListedDirectory& directory, const ListRequest& request);

}  // namespace yard::storage
