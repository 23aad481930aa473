// The directory on which a mount lies: attached to the kernel's FUSE device, and taken off again.
// As root by system calls, else through fusermount3, which is set-uid root.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/result.h"

namespace yard::mount {

// What the kernel says in /proc/self/mountinfo; no mount is asked anything.
struct MountedAt {
  std::string path;
  std::string type;         // "fuse.yard"
  std::string source;       // "s3://bucket/prefix"
  uint64_t connection = 0;  // the kernel's number for it, of a FUSE mount
};
// What is mounted on top of `path` (absolute, without links).
Result<std::optional<MountedAt>> mounted_at(const std::string& path);
// All of this program's, in the order in which they were mounted; of several on one directory the
// last.
Result<std::vector<MountedAt>> mounts_of_yard();

// Takes off what a mount whose process died has left on `path`, and checks that it is a directory.
// kInvalidArgument: a mount of ours serves there already, or it is no directory; kNotFound;
// kUnavailable: what is mounted there does not answer.
Status clear_mount_point(const std::string& path);

// While the result is open no other process of this program starts a mount on `path`.
// kUnavailable: one is doing so.
Result<UniqueFd> hold_mount_point(const std::string& path);

// The descriptor of /dev/fuse that speaks for a new read-only mount on `path`.
// kInvalidArgument, kNotFound, kUnavailable: not allowed, or no FUSE here; the message says what to
// do.
Result<UniqueFd> attach_mount(const std::string& path, const std::string& source, bool allow_other);

enum class DetachMode {
  kIfIdle,   // kUnavailable while files in it are open
  kLazily,   // files that are open go on until they are closed
  kByForce,  // who waits for it gets an error, whatever its process does
};
// Takes the mount off `path` without asking its process. kInvalidArgument: nothing is mounted
// there.
Status detach_mount(const std::string& path, DetachMode mode);

}  // namespace yard::mount
