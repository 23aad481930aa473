// Files under a directory: opening them without ever leaving it, their times and the parts of their
// paths. Thread-safe.
#pragma once

#include <time.h>

#include <string>
#include <string_view>

#include "base/file.h"

namespace yard::storage {

// open() of `path` relative to `root_fd`, never leaving it: not by "..", not by a symbolic link,
// not by a rename at the same moment. `name` is for messages. O_CLOEXEC is added.
// kInvalidArgument: a symbolic link leads out; else as errno_error.
Result<UniqueFd> open_beneath(int root_fd, std::string_view path, int flags,
                              const std::string& name);
// The same on any kernel: symbolic links are not followed at all.
Result<UniqueFd> open_beneath_without_links(int root_fd, std::string_view path, int flags,
                                            const std::string& name);

// A modification time to give a new file: the precise clock's, made to advance from call to call.
// The kernel's own stamps are those of its last tick, milliseconds old, and it reuses the inode
// that a replaced file leaves: two contents could look the same.
timespec next_stamp();

// "a/b/c" -> "a/b" and "c"; "c" -> "" and "c".
std::string_view folder_of(std::string_view path);
std::string_view last_part_of(std::string_view path);

}  // namespace yard::storage
