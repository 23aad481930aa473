// Folders as we find and leave them. Pure system calls, thread-safe; symbolic links are not
// followed.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace yard::gateway {

// But "." and ".."; in no order; none for a folder that cannot be read.
std::vector<std::string> names_in(int folder_fd);

// The folder, if there are only folders in it. On failure errno says why, and it is still there,
// perhaps with fewer folders in it.
bool remove_empty_folders(int parent_fd, const char* name);

// The file or folder, with everything in it; as far as it goes.
void remove_tree(int parent_fd, const char* name);

// The whole file; nothing, with errno, when it cannot be read or is larger than `size_bytes_max`.
std::optional<std::string> read_small_file(int folder_fd, const std::string& name,
                                           size_t size_bytes_max);

}  // namespace yard::gateway
