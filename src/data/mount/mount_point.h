// The directory on which a mount lies: attached to the kernel's FUSE device, and taken off again.
// As root by system calls, else through fusermount3, which is set-uid root.
#pragma once

#include <optional>
#include <string>

#include "base/file.h"
#include "base/result.h"

namespace yard::mount {

struct MountedAt {
  std::string type;    // "fuse.yard"
  std::string source;  // "s3://bucket/prefix"
};
// What is mounted on top of `path` (absolute, without links), by /proc/self/mountinfo.
Result<std::optional<MountedAt>> mounted_at(const std::string& path);

// Takes off what a mount whose process died has left on `path`, and checks that it is a directory.
// kInvalidArgument: a mount of ours serves there already, or it is no directory; kNotFound.
Status clear_mount_point(const std::string& path);

// The descriptor of /dev/fuse that speaks for a new read-only mount on `path`.
// kInvalidArgument, kNotFound, kUnavailable: not allowed, or no FUSE here; the message says what to
// do.
Result<UniqueFd> attach_mount(const std::string& path, const std::string& source, bool allow_other);

// Takes the mount off `path`; files that are open in it go on until they are closed. With
// `even_if_busy` unset: kUnavailable while there are any.
Status detach_mount(const std::string& path, bool even_if_busy);

}  // namespace yard::mount
