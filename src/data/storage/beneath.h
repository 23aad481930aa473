// Opening files under a directory without ever leaving it. Pure system calls, thread-safe.
#pragma once

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

}  // namespace yard::storage
