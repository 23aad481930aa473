#include "mount/mount_point.h"

#include <fcntl.h>
#include <fmt/format.h>
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
  YARD_ASSIGN(const std::string text, read_file("/proc/self/mountinfo", 64 << 20));
  std::optional<MountedAt> found;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    std::string skip, point, type, source;
    fields >> skip >> skip >> skip >> skip >> point;
    while (fields >> skip && skip != "-") {
    }
    fields >> type >> source;
    if (unescaped(point) == path) found = MountedAt{type, unescaped(source)};
  }
  return found;
}

Status clear_mount_point(const std::string& path) {
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
    YARD_TRY(detach_mount(path, true));
  }
  return Error{Code::kUnavailable, path + ": holds too many dead mounts"};
}

Result<UniqueFd> attach_mount(const std::string& path, const std::string& source,
                              bool allow_other) {
  if (::geteuid() == 0) return attach_as_root(path, source, allow_other);
  return attach_as_user(path, source, allow_other);
}

Status detach_mount(const std::string& path, bool even_if_busy) {
  if (::geteuid() != 0) {
    std::vector<std::string> arguments = {"-u", "--", path};
    if (even_if_busy) arguments.insert(arguments.begin(), "-z");
    return run_helper(arguments, -1);
  }
  const int flags = UMOUNT_NOFOLLOW | (even_if_busy ? MNT_DETACH : 0);
  if (::umount2(path.c_str(), flags) == 0) return Ok{};
  if (errno == EBUSY)
    return Error{Code::kUnavailable, path + ": files in it are open; --lazy takes it off anyway"};
  if (errno == EINVAL) return Error{Code::kInvalidArgument, path + ": nothing is mounted there"};
  return errno_error(path, errno);
}

}  // namespace yard::mount
