#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "storage/open_files_internal.h"

namespace yard::storage {
namespace {

constexpr size_t kOpenMax = 32;
// A smaller file, or one read in few parts, is opened for each.
constexpr int64_t kFileBytesMin = 1 << 20;
constexpr uint64_t kPartsMin = 4;

bool read_whole(int fd, uint64_t offset, std::span<std::byte> out) {
  while (!out.empty()) {
    const ssize_t got = ::pread(fd, out.data(), out.size(), off_t(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    out = out.subspan(size_t(got));
    offset += uint64_t(got);
  }
  return true;
}

}  // namespace

// A file that was replaced or removed has no name any more.
bool OpenFiles::Version::is(const struct stat& info) const {
  return info.st_nlink > 0 && info.st_ino == inode && info.st_size == size_bytes &&
         info.st_mtim.tv_sec == modified.tv_sec && info.st_mtim.tv_nsec == modified.tv_nsec;
}

bool OpenFiles::read(std::string_view key, std::string_view etag, uint64_t offset,
                     std::span<std::byte> out) {
  Open found;
  if (!find(key, etag, found)) return false;
  struct stat info = {};
  const int fd = found.file->get();
  if (read_whole(fd, offset, out) && ::fstat(fd, &info) == 0 && found.version.is(info)) return true;
  drop(found);
  return false;
}

void OpenFiles::keep(std::string_view key, std::string_view etag, const struct stat& info,
                     uint64_t part_bytes, UniqueFd file) {
  if (info.st_size < kFileBytesMin || part_bytes > uint64_t(info.st_size) / kPartsMin) return;
  const std::lock_guard lock(mutex_);
  open_.push_front({std::string(key), std::string(etag), Version::of(info),
                    std::make_shared<const UniqueFd>(std::move(file))});
  if (open_.size() > kOpenMax) open_.pop_back();
}

void OpenFiles::forget(std::string_view key) {
  const std::lock_guard lock(mutex_);
  std::erase_if(open_, [&](const Open& open) { return open.key == key; });
}

bool OpenFiles::find(std::string_view key, std::string_view etag, Open& found) {
  const std::lock_guard lock(mutex_);
  const auto is_it = [&](const Open& open) { return open.key == key && open.etag == etag; };
  const auto at = std::ranges::find_if(open_, is_it);
  if (at == open_.end()) return false;
  if (at != open_.begin()) open_.splice(open_.begin(), open_, at);
  found.version = at->version;
  found.file = at->file;
  return true;
}

void OpenFiles::drop(const Open& open) {
  const std::lock_guard lock(mutex_);
  std::erase_if(open_, [&](const Open& other) { return other.file == open.file; });
}

}  // namespace yard::storage
