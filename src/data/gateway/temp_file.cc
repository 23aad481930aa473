#include "gateway/temp_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <vector>

#include "base/ids.h"

namespace yard::gateway {
namespace {

constexpr const char* kName = "an object being written";  // for messages
constexpr uint64_t kCopyBytes = 128 << 20;                // one copy_file_range()
constexpr size_t kBufferBytes = 1 << 20;

bool cannot_copy_in_kernel(int errno_value) {
  return errno_value == EXDEV || errno_value == EINVAL || errno_value == ENOSYS ||
         errno_value == EOPNOTSUPP;
}

// The source was cut while it was read.
S3Error source_ended() {
  return S3Error(Error{Code::kUnavailable, "the source of a copy changed while it was read"});
}

}  // namespace

S3Result<TempFile> TempFile::make(int folder_fd) {
  for (;;) {
    std::string name = random_name(20);
    UniqueFd file(::openat(folder_fd, name.c_str(),
                           O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666));
    if (file.valid()) return TempFile(folder_fd, std::move(file), std::move(name), Fate::kRemoved);
    if (errno != EEXIST) return s3_errno(kName, errno);
  }
}

S3Result<TempFile> TempFile::open_kept(int folder_fd, std::string name) {
  UniqueFd file(::openat(folder_fd, name.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC));
  if (!file.valid()) return s3_errno(kName, errno);
  return TempFile(folder_fd, std::move(file), std::move(name), Fate::kKept);
}

TempFile::TempFile(TempFile&& other) noexcept
    : folder_fd_(other.folder_fd_),
      file_(std::move(other.file_)),
      name_(std::exchange(other.name_, {})),
      fate_(other.fate_) {}

TempFile::~TempFile() {
  if (!name_.empty() && fate_ == Fate::kRemoved) ::unlinkat(folder_fd_, name_.c_str(), 0);
}

S3Status TempFile::reserve(uint64_t size_bytes) {
  if (size_bytes == 0) return Ok{};
  if (::fallocate(fd(), FALLOC_FL_KEEP_SIZE, 0, off_t(size_bytes)) == 0) return Ok{};
  if (errno == ENOSPC || errno == EDQUOT) return s3_errno(kName, errno);
  return Ok{};  // a file system that cannot
}

S3Status TempFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return s3_errno(kName, errno);
    bytes = bytes.subspan(size_t(written));
  }
  return Ok{};
}

S3Status TempFile::append(int from_fd, uint64_t offset, uint64_t length) {
  auto at = off_t(offset);
  while (length > 0) {
    const ssize_t copied =
        ::copy_file_range(from_fd, &at, fd(), nullptr, size_t(std::min(length, kCopyBytes)), 0);
    if (copied < 0 && errno == EINTR) continue;
    if (copied < 0 && cannot_copy_in_kernel(errno)) break;
    if (copied < 0) return s3_errno(kName, errno);
    if (copied == 0) return source_ended();
    length -= uint64_t(copied);
  }
  std::vector<std::byte> buffer(std::min<uint64_t>(length, kBufferBytes));
  while (length > 0) {
    const ssize_t got =
        ::pread(from_fd, buffer.data(), std::min<uint64_t>(length, buffer.size()), at);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return s3_errno(kName, errno);
    if (got == 0) return source_ended();
    YARD_TRY(write(std::span(buffer).first(size_t(got))));
    at += got;
    length -= uint64_t(got);
  }
  return Ok{};
}

S3Status TempFile::seek(uint64_t offset) {
  if (::lseek(fd(), off_t(offset), SEEK_SET) < 0) return s3_errno(kName, errno);
  return Ok{};
}

S3Status TempFile::truncate(uint64_t size_bytes) {
  if (::ftruncate(fd(), off_t(size_bytes)) != 0) return s3_errno(kName, errno);
  return Ok{};
}

S3Status TempFile::write_out(uint64_t step_bytes, const std::function<void()>& progress) {
  struct stat info = {};
  if (::fstat(fd(), &info) != 0) return s3_errno(kName, errno);
  ::sync_file_range(fd(), 0, 0, SYNC_FILE_RANGE_WRITE);
  constexpr unsigned kWait =
      SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
  for (uint64_t at = 0; at < uint64_t(info.st_size); at += step_bytes) {
    // A write that failed is told once, here or by sync(). Other errors: a file system without it.
    if (::sync_file_range(fd(), off_t(at), off_t(step_bytes), kWait) != 0 &&
        (errno == EIO || errno == ENOSPC || errno == EDQUOT))
      return s3_errno(kName, errno);
    progress();
  }
  return Ok{};
}

S3Status TempFile::sync() {
  if (::fsync(fd()) != 0) return s3_errno(kName, errno);
  return Ok{};
}

bool TempFile::rename_to(int to_folder_fd, const std::string& name, Existing existing) {
  const unsigned flags = existing == Existing::kKept ? RENAME_NOREPLACE : 0;
  long failed =
      ::syscall(SYS_renameat2, folder_fd_, name_.c_str(), to_folder_fd, name.c_str(), flags);
  if (failed != 0 && flags != 0 && (errno == EINVAL || errno == ENOSYS)) {
    // A file system without that flag: a link never replaces.
    failed = ::linkat(folder_fd_, name_.c_str(), to_folder_fd, name.c_str(), 0);
    if (failed == 0) ::unlinkat(folder_fd_, name_.c_str(), 0);
  }
  if (failed == 0) name_.clear();
  return failed == 0;
}

S3Status sync_folder(int fd) {
  if (::fsync(fd) == 0 || errno == EINVAL) return Ok{};
  return s3_errno("a folder", errno);
}

}  // namespace yard::gateway
