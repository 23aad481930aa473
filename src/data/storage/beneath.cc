#include <fcntl.h>
#include <fmt/format.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>

#include "storage/beneath_internal.h"

namespace yard::storage {
namespace {

int open_at_2(int root_fd, const char* path, int flags) {
  open_how how = {};
  how.flags = uint64_t(unsigned(flags | O_CLOEXEC));
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS;
  // EAGAIN: something was renamed while ".." of a link was resolved; the bound keeps out a loop.
  for (int attempt = 0; attempt < 64; ++attempt) {
    const int fd = int(::syscall(SYS_openat2, root_fd, path, &how, sizeof how));
    if (fd >= 0 || (errno != EAGAIN && errno != EINTR)) return fd;
  }
  errno = ELOOP;
  return -1;
}

Error open_error(const std::string& name, int errno_value) {
  if (errno_value == EXDEV || errno_value == ELOOP)
    return {Code::kInvalidArgument, name + ": a symbolic link leads out of the store"};
  return errno_error(name, errno_value);
}

}  // namespace

Result<UniqueFd> open_beneath(int root_fd, std::string_view path, int flags,
                              const std::string& name) {
  UniqueFd file(open_at_2(root_fd, std::string(path).c_str(), flags));
  if (file.valid()) return file;
  // Before Linux 5.6; or a sandbox that does not know the call and forbids it.
  if (errno == ENOSYS || errno == EPERM)
    return open_beneath_without_links(root_fd, path, flags, name);
  return open_error(name, errno);
}

Result<UniqueFd> open_beneath_without_links(int root_fd, std::string_view path, int flags,
                                            const std::string& name) {
  UniqueFd folder;
  for (std::string_view rest = path;;) {
    const size_t slash = rest.find('/');
    const std::string part(rest.substr(0, slash));
    if (part.empty() || part == "..") return open_error(name, EXDEV);
    const bool is_last = slash == rest.npos;
    const int part_flags = is_last ? flags : O_RDONLY | O_DIRECTORY;
    const int parent_fd = folder.valid() ? folder.get() : root_fd;
    UniqueFd opened(::openat(parent_fd, part.c_str(), part_flags | O_NOFOLLOW | O_CLOEXEC));
    if (!opened.valid()) {
      // With O_DIRECTORY the kernel says "not a directory" of a link, not "a link".
      struct stat info = {};
      const int why = errno;
      const bool is_link = ::fstatat(parent_fd, part.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 &&
                           S_ISLNK(info.st_mode);
      return open_error(name, is_link ? ELOOP : why);
    }
    if (is_last) return opened;
    folder = std::move(opened);
    rest.remove_prefix(slash + 1);
  }
}

std::string etag_of(const struct stat& file) {
  return fmt::format("{:x}-{:x}-{:x}.{:09}", file.st_ino, file.st_size, file.st_mtim.tv_sec,
                     file.st_mtim.tv_nsec);
}

ObjectInfo info_of(std::string_view key, const struct stat& file) {
  using std::chrono::system_clock;
  const auto modified =
      std::chrono::seconds(file.st_mtim.tv_sec) + std::chrono::nanoseconds(file.st_mtim.tv_nsec);
  return {std::string(key), uint64_t(file.st_size), etag_of(file),
          system_clock::time_point(std::chrono::duration_cast<system_clock::duration>(modified))};
}

timespec next_stamp() {
  static std::atomic<int64_t> last_ns = 0;
  timespec now = {};
  ::clock_gettime(CLOCK_REALTIME, &now);
  int64_t before = last_ns.load();
  int64_t stamp = 0;
  do {
    stamp = std::max(before + 1, int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec);
  } while (!last_ns.compare_exchange_weak(before, stamp));
  return {stamp / 1'000'000'000, stamp % 1'000'000'000};
}

std::string_view folder_of(std::string_view key) {
  const size_t slash = key.rfind('/');
  return slash == key.npos ? std::string_view() : key.substr(0, slash);
}

std::string_view last_part_of(std::string_view key) {
  return key.substr(key.rfind('/') + 1);
}

}  // namespace yard::storage
