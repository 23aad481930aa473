// What the files of a directory store share.
#pragma once

#include <sys/stat.h>

#include <string>
#include <string_view>

#include "storage/beneath.h"
#include "storage/object_store.h"

namespace yard::storage {

std::string etag_of(const struct stat& file);
ObjectInfo info_of(std::string_view key, const struct stat& file);

// list() of a directory store.
Result<ListPage> list_directory(int root_fd, const std::string& root, const ListRequest& request);

}  // namespace yard::storage
