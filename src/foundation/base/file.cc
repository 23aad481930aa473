#include "base/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "base/ids.h"

namespace yard {
namespace {

Status write_all(int fd, const std::string& path, std::string_view content) {
  while (!content.empty()) {
    const ssize_t written = ::write(fd, content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno_error(path, errno);
    content.remove_prefix(static_cast<size_t>(written));
  }
  return Ok{};
}

std::string directory_of(const std::string& path) {
  const auto parent = std::filesystem::path(path).parent_path();
  return parent.empty() ? "." : parent.string();
}

Status sync_directory(const std::string& path) {
  const UniqueFd directory(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory.valid()) return errno_error(path, errno);
  // Some network file systems cannot sync a directory and say EINVAL; the rename stands.
  if (::fsync(directory.get()) != 0 && errno != EINVAL) return errno_error(path, errno);
  return Ok{};
}

Status write_synced(const std::string& path, std::string_view content) {
  UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!file.valid()) return errno_error(path, errno);
  YARD_TRY(write_all(file.get(), path, content));
  if (::fsync(file.get()) != 0) return errno_error(path, errno);
  // A quota on NFS is reported only here.
  if (::close(file.release()) != 0) return errno_error(path, errno);
  return Ok{};
}

Status write_and_rename(const std::string& temporary, const std::string& path,
                        std::string_view content) {
  YARD_TRY(write_synced(temporary, content));
  if (::rename(temporary.c_str(), path.c_str()) != 0) return errno_error(path, errno);
  return Ok{};
}

}  // namespace

void UniqueFd::reset(int fd) {
  if (fd_ >= 0) ::close(fd_);
  fd_ = fd;
}

Result<std::string> read_file(const std::string& path, uint64_t size_bytes_max) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return errno_error(path, errno);
  struct stat info = {};
  if (::fstat(file.get(), &info) != 0) return errno_error(path, errno);
  const auto too_large = [&] {
    return Error{Code::kExhausted, fmt::format("{}: larger than {} bytes", path, size_bytes_max)};
  };
  if (info.st_size > 0 && static_cast<uint64_t>(info.st_size) > size_bytes_max) return too_large();

  // st_size is a hint: files of /proc say 0, and another process may append while we read.
  std::string content;
  constexpr size_t kStepBytes = 64 * 1024;
  size_t used = 0;
  content.resize(static_cast<size_t>(info.st_size) + 1);
  while (true) {
    if (used == content.size()) content.resize(used + kStepBytes);
    const ssize_t got = ::read(file.get(), content.data() + used, content.size() - used);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno_error(path, errno);
    if (got == 0) break;
    used += static_cast<size_t>(got);
    if (used > size_bytes_max) return too_large();
  }
  content.resize(used);
  return content;
}

Status write_file_atomic(const std::string& path, std::string_view content) {
  const std::string temporary = path + ".tmp-" + random_name(8);
  if (auto written = write_and_rename(temporary, path, content); !written) {
    ::unlink(temporary.c_str());
    return std::move(written).error().while_("writing " + path);
  }
  return sync_directory(directory_of(path));
}

Status make_directories(const std::string& path) {
  std::error_code failed;
  std::filesystem::create_directories(path, failed);
  std::error_code unknown;
  if (std::filesystem::is_directory(path, unknown)) return Ok{};
  // A file in the way is ENOTDIR, which elsewhere means "not found"; here the request is wrong.
  if (!failed || failed.value() == ENOTDIR || failed.value() == ENOENT)
    return Error{Code::kInvalidArgument, "'" + path + "': cannot be made a directory"};
  return errno_error(path, failed.value());
}

}  // namespace yard
