#include "gateway/meta_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "gateway/folders.h"
#include "storage/beneath.h"

namespace yard::gateway {
namespace {

constexpr const char* kAttribute = "user.yard.s3";
constexpr size_t kMetaBytesMax = 256 << 10;

std::string file_name_of(const FileStamp& stamp) {
  return fmt::format("{:x}-{:x}-{:x}", stamp.inode, stamp.size_bytes, stamp.mtime_ns);
}

// Nothing when there is none, or none that fits into `kMetaBytesMax`.
std::optional<std::string> read_attribute(int fd) {
  std::string text(1024, '\0');
  ssize_t size = ::fgetxattr(fd, kAttribute, text.data(), text.size());
  if (size < 0 && errno == ERANGE) {
    text.resize(kMetaBytesMax);
    size = ::fgetxattr(fd, kAttribute, text.data(), text.size());
  }
  if (size < 0) return std::nullopt;
  text.resize(size_t(size));
  return text;
}

// Not by a temporary: nothing looks for this name before the object's file has its own.
S3Status write_small_file(int folder_fd, const std::string& name, const std::string& text) {
  const UniqueFd file(::openat(folder_fd, name.c_str(),
                               O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666));
  if (!file.valid()) return s3_errno("metadata " + name, errno);
  const ssize_t written = ::write(file.get(), text.data(), text.size());
  if (written < 0) return s3_errno("metadata " + name, errno);
  if (size_t(written) != text.size()) return s3_errno("metadata " + name, ENOSPC);
  if (::fsync(file.get()) != 0 || (::fsync(folder_fd) != 0 && errno != EINVAL))
    return s3_errno("metadata " + name, errno);
  return Ok{};
}

}  // namespace

FileStamp stamp_of(const struct stat& info) {
  return {info.st_ino, uint64_t(info.st_size),
          int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec};
}

MetaStore::MetaStore(UniqueFd folder, Place place)
    : folder_(std::move(folder)), place_(place), has_files_(!names_in(folder_.get()).empty()) {}

S3Result<FileStamp> MetaStore::attach(int fd, const ObjectMeta& meta) {
  const timespec time = storage::next_stamp();
  const timespec times[2] = {time, time};
  struct stat info = {};
  if (::futimens(fd, times) != 0 || ::fstat(fd, &info) != 0) return s3_errno("an upload", errno);
  const FileStamp stamp = stamp_of(info);  // of the file system's own precision
  const std::string text = encode_meta({meta, stamp});
  if (text.size() > kMetaBytesMax) return s3::kMetadataTooLarge;
  if (place_ == Place::kAttributeOrFile &&
      ::fsetxattr(fd, kAttribute, text.data(), text.size(), 0) == 0)
    return stamp;
  // One of an earlier content would be found first.
  if (place_ == Place::kAttributeOrFile) ::fremovexattr(fd, kAttribute);
  has_files_ = true;
  YARD_TRY(write_small_file(folder_.get(), file_name_of(stamp), text));
  return stamp;
}

std::optional<ObjectMeta> MetaStore::find(int fd, const FileStamp& stamp) const {
  std::optional<std::string> text;
  if (place_ == Place::kAttributeOrFile) text = read_attribute(fd);
  if (!text && has_files_)
    text = read_small_file(folder_.get(), file_name_of(stamp), kMetaBytesMax);
  if (!text) return std::nullopt;
  auto stamped = decode_meta(*text);
  // The inode is not compared: an attribute that moved with a whole copy still fits its content.
  if (!stamped || stamped->stamp.size_bytes != stamp.size_bytes ||
      stamped->stamp.mtime_ns != stamp.mtime_ns)
    return std::nullopt;
  return std::move(stamped->meta);
}

void MetaStore::forget(const FileStamp& stamp) {
  if (has_files_) ::unlinkat(folder_.get(), file_name_of(stamp).c_str(), 0);
}

}  // namespace yard::gateway
