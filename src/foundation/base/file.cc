#include "base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "base/ids.h"

namespace yard {
namespace {

Status write_all(int fd, std::string_view content, const std::string& path) {
  while (!content.empty()) {
    const ssize_t written = ::write(fd, content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno_error(path, errno);
    content.remove_prefix(static_cast<size_t>(written));
  }
  return Ok{};
}

Status sync_directory(const std::string& directory) {
  UniqueFd fd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid() || ::fsync(fd.get()) != 0) return errno_error(directory, errno);
  return Ok{};
}

Status write_and_sync(const std::string& temporary, std::string_view content) {
  UniqueFd fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (!fd.valid()) return errno_error(temporary, errno);
  YARD_TRY(write_all(fd.get(), content, temporary));
  if (::fsync(fd.get()) != 0) return errno_error(temporary, errno);
  if (::close(fd.release()) != 0) return errno_error(temporary, errno);
  return Ok{};
}

}  // namespace

void UniqueFd::reset(int fd) {
  if (fd_ >= 0) ::close(fd_);
  fd_ = fd;
}

Result<std::string> read_file(const std::string& path, uint64_t size_bytes_max) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return errno_error(path, errno);
  std::string content;
  // Not by the size from fstat: files of /proc say 0, and a log may grow meanwhile.
  constexpr size_t kStep = size_t{1} << 16;
  for (size_t used = 0;;) {
    content.resize(used + kStep);
    const ssize_t got = ::read(fd.get(), content.data() + used, kStep);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno_error(path, errno);
    used += static_cast<size_t>(got);
    content.resize(used);
    if (got == 0) return content;
    if (used > size_bytes_max) {
      return Error{Code::kExhausted,
                   path + ": larger than " + std::to_string(size_bytes_max) + " bytes"};
    }
  }
}

Status write_file_atomic(const std::string& path, std::string_view content) {
  const std::filesystem::path target(path);
  const std::string directory = target.has_parent_path() ? target.parent_path().string() : ".";
  const std::string temporary =
      directory + "/." + target.filename().string() + "." + random_name(8);
  Status status = write_and_sync(temporary, content);
  if (status && ::rename(temporary.c_str(), path.c_str()) != 0) status = errno_error(path, errno);
  if (!status) {
    ::unlink(temporary.c_str());
    return status;
  }
  return sync_directory(directory);
}

Status make_directories(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) return errno_error(path, error.value());
  if (!std::filesystem::is_directory(path, error)) return errno_error(path, ENOTDIR);
  return Ok{};
}

}  // namespace yard
