#include "mount/mount_point.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "base/subprocess.h"
#include "mount/mount_health.h"

namespace yard::mount {
namespace {

constexpr const char* kDevice = "/dev/fuse";
constexpr std::string_view kType = "fuse.yard";
constexpr std::chrono::seconds kHelperMax{30};
constexpr int kDeadMountsMax = 16;  // on one directory

// mountinfo writes blanks and backslashes as \040.
std::string unescaped(std::string_view text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size()) {
      plain +=
          static_cast<char>(std::strtol(std::string(text.substr(i + 1, 3)).c_str(), nullptr, 8));
      i += 3;
    } else {
      plain += text[i];
    }
  }
  return plain;
}

// "36 35 0:45 / /data rw,... - fuse.yard s3://bucket rw,...", see proc(5).
MountedAt parse_mount(const std::string& line) {
  std::istringstream fields(line);
  std::string skip, device, point, type, source;
  fields >> skip >> skip >> device >> skip >> point;
  while (fields >> skip && skip != "-") {
  }
  fields >> type >> source;
  const size_t colon = std::min(device.find(':'), device.size());
  return {unescaped(point), type, unescaped(source),
          std::strtoull(device.c_str() + colon + (colon < device.size() ? 1 : 0), nullptr, 10)};
}

Result<std::vector<MountedAt>> all_mounts() {
  YARD_ASSIGN(const std::string text, read_file("/proc/self/mountinfo", 64 << 20));
  std::vector<MountedAt> mounts;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) mounts.push_back(parse_mount(line));
  return mounts;
}

// Ends all requests of a mount; root, and the user whose mount it is, may.
Status abort_connection(const std::string& path) {
  YARD_ASSIGN(const auto mounted, mounted_at(path));
  if (!mounted) return Error{Code::kInvalidArgument, path + ": nothing is mounted there"};
  const std::string file = fmt::format("/sys/fs/fuse/connections/{}/abort", mounted->connection);
  const UniqueFd fd(::open(file.c_str(), O_WRONLY | O_CLOEXEC));
  if (!fd.valid() || ::write(fd.get(), "1", 1) != 1)
    return errno_error(file + ", which would end what waits for " + path, errno);
  return Ok{};
}

Status run_helper(const std::vector<std::string>& arguments, int comm_fd) {
  SubprocessOptions options;
  options.argv = {"fusermount3"};
  options.argv.insert(options.argv.end(), arguments.begin(), arguments.end());
  options.env = {{"PATH", "/usr/bin:/bin:/usr/local/bin"}};
  if (comm_fd >= 0) options.env["_FUSE_COMMFD"] = "0";
  options.stdin_fd = comm_fd;
  auto child = Subprocess::spawn(options);
  if (!child)
    return std::move(child).error().while_("fusermount3, which mounts for users (package fuse3)");
  YARD_ASSIGN(const ExitStatus ended, child->wait(kHelperMax));
  if (ended.ok()) return Ok{};
  return Error{Code::kUnavailable, fmt::format("fusermount3 failed with {}", ended.code)};
}

Result<UniqueFd> receive_fd(int socket) {
  char byte = 0;
  iovec data{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  if (::recvmsg(socket, &message, MSG_CMSG_CLOEXEC) <= 0) return errno_error("fusermount3", EPROTO);
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header == nullptr || header->cmsg_type != SCM_RIGHTS)
    return errno_error("fusermount3", EPROTO);
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
  return UniqueFd(fd);
}

Result<UniqueFd> attach_as_user(const std::string& path, const std::string& source,
                                bool allow_other) {
  int sockets[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0)
    return errno_error("socketpair", errno);
  const UniqueFd own(sockets[0]);
  UniqueFd theirs(sockets[1]);
  // A comma ends an option.
  std::string name;
  for (const char c : source)
    name += c == ',' || c == '\\' ? std::string("\\") + c : std::string(1, c);
  const std::string options =
      fmt::format("ro,nosuid,nodev,noatime,default_permissions,subtype=yard,fsname={}{}", name,
                  allow_other ? ",allow_other" : "");
  YARD_TRY(run_helper({"-o", options, "--", path}, theirs.get()));
  theirs.reset();
  return receive_fd(own.get());
}

Result<UniqueFd> attach_as_root(const std::string& path, const std::string& source,
                                bool allow_other) {
  UniqueFd device(::open(kDevice, O_RDWR | O_CLOEXEC));
  if (!device.valid())
    return Error{Code::kUnavailable,
                 fmt::format("{}: {}; a container needs --device /dev/fuse --cap-add SYS_ADMIN",
                             kDevice, std::strerror(errno))};
  const std::string data =
      fmt::format("fd={},rootmode=40000,user_id={},group_id={},default_permissions{}", device.get(),
                  ::getuid(), ::getgid(), allow_other ? ",allow_other" : "");
  constexpr unsigned long kFlags = MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOATIME;
  if (::mount(source.c_str(), path.c_str(), std::string(kType).c_str(), kFlags, data.c_str()) != 0)
    return Error{Code::kUnavailable,
                 fmt::format("cannot mount on {}: {}", path, std::strerror(errno))};
  return device;
}

}  // namespace

Result<std::optional<MountedAt>> mounted_at(const std::string& path) {
  YARD_ASSIGN(const std::vector<MountedAt> mounts, all_mounts());
  std::optional<MountedAt> found;
  for (const MountedAt& mounted : mounts)
    if (mounted.path == path) found = mounted;
  return found;
}

Result<std::vector<MountedAt>> mounts_of_yard() {
  YARD_ASSIGN(const std::vector<MountedAt> mounts, all_mounts());
  std::vector<MountedAt> ours;
  for (const MountedAt& mounted : mounts) {
    std::erase_if(ours, [&](const MountedAt& below) { return below.path == mounted.path; });
    if (mounted.type == kType) ours.push_back(mounted);
  }
  return ours;
}

Status clear_mount_point(const std::string& path) {
  YARD_ASSIGN(const MountHealth health, ask_mount(path));
  if (health == MountHealth::kSilent)
    return Error{Code::kUnavailable,
                 fmt::format("{}: what is mounted there does not answer: its process is stopped or "
                             "hangs; 'yard unmount --force {}' takes it off",
                             path, path)};
  for (int i = 0; i < kDeadMountsMax; ++i) {
    // The kernel may know a dead mount's attributes still; statfs() asks its process.
    struct stat info = {};
    struct statfs file_system = {};
    const bool answers =
        ::stat(path.c_str(), &info) == 0 && ::statfs(path.c_str(), &file_system) == 0;
    const int failure = answers ? 0 : errno;
    if (failure == 0) {
      std::error_code error;
      YARD_ASSIGN(const auto mounted, mounted_at(std::filesystem::canonical(path, error)));
      if (mounted && mounted->type == kType)
        return Error{Code::kInvalidArgument,
                     fmt::format("{}: {} is mounted there already", path, mounted->source)};
      if (!S_ISDIR(info.st_mode))
        return Error{Code::kInvalidArgument, path + ": is not a directory"};
      return Ok{};
    }
    if (failure != ENOTCONN && failure != ECONNABORTED) return errno_error(path, failure);
    log_warning("{}: the process of the mount there is dead; it is taken off", path);
    YARD_TRY(detach_mount(path, DetachMode::kLazily));
  }
  return Error{Code::kUnavailable, path + ": holds too many dead mounts"};
}

Result<UniqueFd> hold_mount_point(const std::string& path) {
  UniqueFd directory(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory.valid()) return errno_error(path, errno);
  if (::flock(directory.get(), LOCK_EX | LOCK_NB) == 0) return directory;
  if (errno != EWOULDBLOCK) return errno_error(path, errno);
  return Error{Code::kUnavailable, path + ": another process is just mounting something there"};
}

Result<UniqueFd> attach_mount(const std::string& path, const std::string& source,
                              bool allow_other) {
  if (::geteuid() == 0) return attach_as_root(path, source, allow_other);
  return attach_as_user(path, source, allow_other);
}

Status detach_mount(const std::string& path, DetachMode mode) {
  if (::geteuid() != 0) {
    if (mode == DetachMode::kByForce) YARD_TRY(abort_connection(path));
    std::vector<std::string> arguments = {"-u", "--", path};
    if (mode != DetachMode::kIfIdle) arguments.insert(arguments.begin(), "-z");
    return run_helper(arguments, -1);
  }
  const int flags = UMOUNT_NOFOLLOW | (mode != DetachMode::kIfIdle ? MNT_DETACH : 0) |
                    (mode == DetachMode::kByForce ? MNT_FORCE : 0);
  if (::umount2(path.c_str(), flags) == 0) return Ok{};
  if (errno == EBUSY)
    return Error{Code::kUnavailable, path + ": files in it are open; --lazy takes it off anyway"};
  if (errno == EINVAL) return Error{Code::kInvalidArgument, path + ": nothing is mounted there"};
  return errno_error(path, errno);
}

}  // namespace yard::mount
