// Opening files under a directory without ever leaving it.
#pragma once

#include <sys/stat.h>

#include <string>
#include <string_view>

#include "base/file.h"
#include "storage/object_store.h"

namespace yard::storage {

// open() of `path` relative to `root_fd`, never leaving it: not by "..", not by a symbolic link,
// not by a rename at the same moment. `name` is for messages. O_CLOEXEC is added.
Result<UniqueFd> open_beneath(int root_fd, std::string_view path, int flags,
                              const std::string& name);
// The same on any kernel: symbolic links are not followed at all.
Result<UniqueFd> open_beneath_without_links(int root_fd, std::string_view path, int flags,
                                            const std::string& name);

std::string etag_of(const struct stat& file);

// "a/b" of "a/b/c", empty for "c"; and "c".
std::string_view folder_of(std::string_view key);
std::string_view last_part_of(std::string_view key);

// list() of a directory store.
Result<ListPage> list_directory(int root_fd, const std::string& root, const ListRequest& request);

}  // namespace yard::storage
