#include "storage/directory_store.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <vector>

#include "base/ids.h"
#include "storage/beneath_internal.h"
#include "storage/folder_names_internal.h"
#include "storage/keys.h"
#include "storage/open_files_internal.h"

namespace yard::storage {
namespace {

// put() makes its folder again when a remove() at the same moment took it away; so often at most.
constexpr int kAttemptsMax = 16;

Status sync_folder(int fd, const std::string& name) {
  // Some network file systems cannot sync a directory and say EINVAL; the rename stands.
  if (::fsync(fd) == 0 || errno == EINVAL) return Ok{};
  return errno_error(name, errno);
}

// renameat2(RENAME_NOREPLACE), or link() where the file system lacks it. Leaves errno.
bool rename_if_absent(int from_fd, const char* from, int to_fd, const char* to) {
  if (::syscall(SYS_renameat2, from_fd, from, to_fd, to, RENAME_NOREPLACE) == 0) return true;
  if (errno != EINVAL && errno != ENOSYS) return false;
  if (::linkat(from_fd, from, to_fd, to, 0) != 0) return false;
  ::unlinkat(from_fd, from, 0);
  return true;
}

Error rename_error(const std::string& path, int errno_value) {
  if (errno_value == EEXIST) return {Code::kInvalidArgument, path + ": already exists"};
  if (errno_value == EISDIR || errno_value == ENOTEMPTY)
    return {Code::kInvalidArgument, path + ": other objects lie under this key"};
  if (errno_value == EXDEV)
    return {Code::kInvalidArgument, path + ": lies on another file system than the store's root"};
  return errno_error(path, errno_value);
}

Error change_error(const std::string& path) {
  return {Code::kCorrupt, path + ": changed while it was read"};
}

Result<struct stat> stat_object(int fd, const std::string& path) {
  struct stat info = {};
  if (::fstat(fd, &info) != 0) return errno_error(path, errno);
  if (!S_ISREG(info.st_mode)) return Error{Code::kNotFound, path + ": not a file"};
  return info;
}

Status read_exactly(int fd, const std::string& path, uint64_t offset, std::span<std::byte> out) {
  while (!out.empty()) {
    const ssize_t got = ::pread(fd, out.data(), out.size(), off_t(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno_error(path, errno);
    if (got == 0) return change_error(path);  // it was long enough a moment ago
    out = out.subspan(size_t(got));
    offset += uint64_t(got);
  }
  return Ok{};
}

// Removes what writers left that no longer live: their temporaries are not locked.
void sweep(int staging_fd) {
  DIR* const stream = ::fdopendir(::fcntl(staging_fd, F_DUPFD_CLOEXEC, 0));
  if (stream == nullptr) return;
  while (const dirent* entry = ::readdir(stream)) {
    const UniqueFd file(::openat(staging_fd, entry->d_name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
    struct stat info = {};
    if (!file.valid() || ::fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode)) continue;
    if (::flock(file.get(), LOCK_EX | LOCK_NB) == 0) ::unlinkat(staging_fd, entry->d_name, 0);
  }
  ::closedir(stream);
}

}  // namespace

// A locked temporary in the staging folder. The lock tells a sweeper that its writer lives.
class DirectoryStore::FileUpload final : public Upload {
 public:
  FileUpload(DirectoryStore& store, std::string_view key, const PutOptions& options,
             UniqueFd staging, UniqueFd file, std::string temporary)
      : store_(store),
        key_(key),
        path_(store.path_of(key)),
        options_(options),
        staging_(std::move(staging)),
        file_(std::move(file)),
        temporary_(std::move(temporary)) {}

  ~FileUpload() override {
    if (!is_visible_) {
      ::unlinkat(staging_.get(), temporary_.c_str(), 0);
      store_.remove_empty_parents(key_);
    }
    // The last writer takes the staging folder away; while others write, it is not empty.
    ::unlinkat(store_.root_fd_.get(), std::string(kStagingFolder).c_str(), AT_REMOVEDIR);
  }

  Status write(std::span<const std::byte> bytes) override {
    while (!bytes.empty()) {
      const ssize_t written = ::write(file_.get(), bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return errno_error(path_, errno);
      bytes = bytes.subspan(size_t(written));
      written_bytes_ += uint64_t(written);
    }
    start_writing_back();
    return Ok{};
  }

  // The rest of `source`, from where it stands.
  Status write_file(int source, const std::string& source_path) {
    for (;;) {
      constexpr size_t kStepBytes = size_t{1} << 30;
      const ssize_t copied =
          ::copy_file_range(source, nullptr, file_.get(), nullptr, kStepBytes, 0);
      if (copied == 0) return Ok{};
      if (copied < 0 && errno == EINTR) continue;
      // Between file systems, and on those that cannot do it.
      if (copied < 0 &&
          (errno == EXDEV || errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP))
        return write_read_file(source, source_path);
      if (copied < 0) return errno_error(path_, errno);
    }
  }

  Result<ObjectInfo> commit() override {
    const timespec stamp = next_stamp();
    const timespec times[2] = {stamp, stamp};
    if (::futimens(file_.get(), times) != 0) return errno_error(path_, errno);
    if (::fsync(file_.get()) != 0) return errno_error(path_, errno);
    YARD_ASSIGN(const struct stat info, stat_object(file_.get(), path_));
    YARD_TRY(make_visible());
    store_.open_files_->forget(key_);
    return info_of(key_, info);
  }

 private:
  // The disk begins now, so that the fsync of commit() has little to wait for. Only a hint.
  void start_writing_back() {
    constexpr uint64_t kStepBytes = uint64_t{8} << 20;
    if (written_bytes_ - written_back_bytes_ < kStepBytes) return;
    static_cast<void>(::sync_file_range(file_.get(), off_t(written_back_bytes_),
                                        off_t(written_bytes_ - written_back_bytes_),
                                        SYNC_FILE_RANGE_WRITE));
    written_back_bytes_ = written_bytes_;
  }

  Status write_read_file(int source, const std::string& source_path) {
    std::vector<std::byte> buffer(size_t{1} << 20);
    for (;;) {
      const ssize_t got = ::read(source, buffer.data(), buffer.size());
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return errno_error(source_path, errno);
      if (got == 0) return Ok{};
      YARD_TRY(write(std::span(buffer).first(size_t(got))));
    }
  }

  Status make_visible() {
    const std::string name(last_part_of(key_));
    int why = 0;
    for (int attempt = 0; attempt < kAttemptsMax; ++attempt) {
      auto parent = store_.make_parent(key_);
      if (!parent) return std::move(parent).error();
      is_visible_ =
          options_.if_absent
              ? rename_if_absent(staging_.get(), temporary_.c_str(), parent->get(), name.c_str())
              : ::renameat(staging_.get(), temporary_.c_str(), parent->get(), name.c_str()) == 0;
      if (is_visible_) return sync_folder(parent->get(), path_);
      why = errno;
      if (why == EISDIR || why == ENOTEMPTY || (why == EEXIST && is_folder(*parent, name)))
        ::unlinkat(parent->get(), name.c_str(), AT_REMOVEDIR);  // an empty folder is no object
      else if (why != ENOENT)
        break;
    }
    return rename_error(path_, why);
  }

  static bool is_folder(const UniqueFd& parent, const std::string& name) {
    struct stat info = {};
    return ::fstatat(parent.get(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 &&
           S_ISDIR(info.st_mode);
  }

  DirectoryStore& store_;
  const std::string key_;
  const std::string path_;
  const PutOptions options_;
  UniqueFd staging_;
  UniqueFd file_;
  const std::string temporary_;
  uint64_t written_bytes_ = 0;  // by write()
  uint64_t written_back_bytes_ = 0;
  bool is_visible_ = false;
};

DirectoryStore::DirectoryStore(std::string root, UniqueFd root_fd)
    : root_(std::move(root)),
      root_fd_(std::move(root_fd)),
      folders_(std::make_unique<FolderCache>()),
      open_files_(std::make_unique<OpenFiles>()) {}
DirectoryStore::~DirectoryStore() = default;

Result<std::unique_ptr<DirectoryStore>> DirectoryStore::open(const std::string& root) {
  std::error_code failed;
  std::string absolute = std::filesystem::absolute(root, failed).lexically_normal().string();
  if (failed) return errno_error(root, failed.value());
  while (absolute.size() > 1 && absolute.ends_with('/')) absolute.pop_back();
  UniqueFd fd(::open(absolute.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid() && errno == ENOTDIR)
    return Error{Code::kInvalidArgument, absolute + ": not a directory"};
  if (!fd.valid()) return errno_error(absolute, errno);
  return std::unique_ptr<DirectoryStore>(new DirectoryStore(std::move(absolute), std::move(fd)));
}

std::string DirectoryStore::path_of(std::string_view key) const {
  return fmt::format("{}/{}", root_ == "/" ? "" : root_, key);
}

std::string DirectoryStore::url() const {
  std::string url = "file://";
  for (const char c : root_) {
    const bool is_plain = static_cast<unsigned char>(c) > 0x20 && c != '%' && c != '?' && c != '#';
    url += is_plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return url;
}

Status DirectoryStore::get_range(std::string_view key, std::string_view etag, uint64_t offset,
                                 std::span<std::byte> out) {
  YARD_TRY(check_own_key(key));
  if (!etag.empty() && open_files_->read(key, etag, offset, out)) return Ok{};
  const std::string path = path_of(key);
  // O_NONBLOCK: a FIFO of that name must not hold us; regular files ignore it.
  YARD_ASSIGN(UniqueFd file, open_beneath(root_fd_.get(), key, O_RDONLY | O_NONBLOCK, path));
  // Of a version that is known, what the file says of itself afterwards tells all. What fails so is
  // asked again, step by step, for the right word.
  if (!etag.empty() && !out.empty() && read_exactly(file.get(), path, offset, out)) {
    YARD_ASSIGN(const struct stat info, stat_object(file.get(), path));
    if (etag != etag_of(info)) return change_error(path);
    open_files_->keep(key, etag, info, out.size(), std::move(file));
    return Ok{};
  }
  YARD_ASSIGN(const struct stat before, stat_object(file.get(), path));
  if (!etag.empty() && etag != etag_of(before)) return change_error(path);
  const uint64_t size_bytes = uint64_t(before.st_size);
  if (offset > size_bytes || out.size() > size_bytes - offset)
    return Error{Code::kInvalidArgument,
                 fmt::format("{}: range of {} bytes at {} runs past its {} bytes", path, out.size(),
                             offset, size_bytes)};
  YARD_TRY(read_exactly(file.get(), path, offset, out));
  // Somebody may have rewritten the file in place while we read.
  YARD_ASSIGN(const struct stat after, stat_object(file.get(), path));
  if (etag_of(after) != etag_of(before)) return change_error(path);
  return Ok{};
}

Result<RangeReader> DirectoryStore::reader(std::string_view key, std::string_view etag) {
  YARD_TRY(check_own_key(key));
  const std::string path = path_of(key);
  YARD_ASSIGN(UniqueFd opened, open_beneath(root_fd_.get(), key, O_RDONLY | O_NONBLOCK, path));
  YARD_ASSIGN(const struct stat before, stat_object(opened.get(), path));
  const std::string wanted = etag_of(before);
  if (!etag.empty() && etag != wanted) return change_error(path);
  const auto file = std::make_shared<UniqueFd>(std::move(opened));
  return RangeReader([file, path, wanted](uint64_t offset, std::span<std::byte> into) -> Status {
    YARD_TRY(read_exactly(file->get(), path, offset, into));
    YARD_ASSIGN(const struct stat after, stat_object(file->get(), path));
    if (etag_of(after) != wanted) return change_error(path);
    return Ok{};
  });
}

Result<ObjectInfo> DirectoryStore::head(std::string_view key) {
  YARD_TRY(check_own_key(key));
  const std::string path = path_of(key);
  YARD_ASSIGN(const UniqueFd file, open_beneath(root_fd_.get(), key, O_PATH, path));
  YARD_ASSIGN(const struct stat info, stat_object(file.get(), path));
  return info_of(key, info);
}

Result<ListPage> DirectoryStore::list(const ListRequest& request) {
  YARD_TRY(check_list_request(request));
  return list_directory({root_fd_.get(), root_, *folders_, {}}, request);
}

Result<std::vector<ObjectInfo>> DirectoryStore::list_all(std::string_view prefix) {
  return list_all(prefix, {});
}

Result<std::vector<ObjectInfo>> DirectoryStore::list_all(std::string_view prefix,
                                                         const LeftOut& left_out) {
  const ListRequest request{.prefix = std::string(prefix), .object_count_max = UINT32_MAX};
  YARD_ASSIGN(ListPage page, list_directory({root_fd_.get(), root_, *folders_, left_out}, request));
  // More objects than a 32-bit number counts: the rest in pages.
  if (!page.next_start_after.empty()) return ObjectStore::list_all(prefix);
  return std::move(page.objects);
}

Status DirectoryStore::check_own_key(std::string_view key) const {
  YARD_TRY(check_key(key));
  if (key.substr(0, key.find('/')) != kStagingFolder) return Ok{};
  return Error{Code::kInvalidArgument,
               fmt::format("key '{}': the folder {} is the store's own", key, kStagingFolder)};
}

Result<UniqueFd> DirectoryStore::make_parent(std::string_view key) const {
  const std::string_view parent = folder_of(key);
  UniqueFd folder(::fcntl(root_fd_.get(), F_DUPFD_CLOEXEC, 0));
  if (!folder.valid()) return errno_error(root_, errno);
  for (size_t end = 0; end < parent.size();) {
    end = std::min(parent.find('/', end + 1), parent.size());
    const std::string path(parent.substr(0, end));
    const std::string part(last_part_of(path));
    const bool is_new = ::mkdirat(folder.get(), part.c_str(), 0777) == 0;
    if (!is_new && errno != EEXIST) return errno_error(path_of(path), errno);
    if (is_new) YARD_TRY(sync_folder(folder.get(), path_of(path)));
    auto opened = open_beneath(root_fd_.get(), path, O_RDONLY | O_DIRECTORY, path_of(path));
    if (!opened) {
      // ENOTDIR reads "not found"; but here the request is wrong: an object is in the way.
      struct stat info = {};
      if (::fstatat(folder.get(), part.c_str(), &info, 0) == 0 && S_ISREG(info.st_mode))
        return Error{Code::kInvalidArgument,
                     fmt::format("{}: '{}' is an object, not a folder", path_of(key), path)};
      return std::move(opened).error();
    }
    folder = *std::move(opened);
  }
  return folder;
}

Result<UniqueFd> DirectoryStore::open_staging() {
  const std::string name(kStagingFolder);
  if (::mkdirat(root_fd_.get(), name.c_str(), 0777) != 0 && errno != EEXIST)
    return errno_error(path_of(name), errno);
  UniqueFd staging(
      ::openat(root_fd_.get(), name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!staging.valid()) return errno_error(path_of(name), errno);
  std::call_once(swept_, [&] { sweep(staging.get()); });
  return staging;
}

Result<std::unique_ptr<DirectoryStore::FileUpload>> DirectoryStore::start_upload(
    std::string_view key, const PutOptions& options) {
  YARD_TRY(check_own_key(key));
  // So that a bad key or a folder that cannot be written fails before gigabytes are.
  YARD_TRY(make_parent(key));
  for (int attempt = 0; attempt < kAttemptsMax; ++attempt) {
    auto staging = open_staging();
    if (!staging && staging.error().code == Code::kNotFound) continue;  // another took it away
    if (!staging) return std::move(staging).error();
    std::string temporary = random_name(16);
    UniqueFd file(::openat(staging->get(), temporary.c_str(),
                           O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666));
    if (!file.valid() && (errno == EEXIST || errno == ENOENT)) continue;
    if (!file.valid()) return errno_error(path_of(key), errno);
    struct stat info = {};
    // A sweeper may have come between creation and lock; then the file has no name any more.
    if (::flock(file.get(), LOCK_EX) != 0 || ::fstat(file.get(), &info) != 0)
      return errno_error(path_of(key), errno);
    if (info.st_nlink == 0) continue;
    return std::make_unique<FileUpload>(*this, key, options, *std::move(staging), std::move(file),
                                        std::move(temporary));
  }
  return Error{Code::kUnavailable, path_of(key) + ": no temporary file could be made"};
}

Result<std::unique_ptr<Upload>> DirectoryStore::upload(std::string_view key,
                                                       const PutOptions& options) {
  YARD_ASSIGN(std::unique_ptr<Upload> upload, start_upload(key, options));
  return upload;
}

Result<ObjectInfo> DirectoryStore::copy(std::string_view source, std::string_view key,
                                        const PutOptions& options) {
  YARD_TRY(check_own_key(source));
  const std::string path = path_of(source);
  YARD_ASSIGN(const UniqueFd file,
              open_beneath(root_fd_.get(), source, O_RDONLY | O_NONBLOCK, path));
  YARD_ASSIGN(const struct stat before, stat_object(file.get(), path));
  YARD_ASSIGN(const auto upload, start_upload(key, options));
  YARD_TRY(upload->write_file(file.get(), path));
  YARD_ASSIGN(const struct stat after, stat_object(file.get(), path));
  if (etag_of(after) != etag_of(before)) return change_error(path);
  return upload->commit();
}

Result<ObjectInfo> DirectoryStore::put(std::string_view key, std::span<const std::byte> content,
                                       const PutOptions& options) {
  YARD_ASSIGN(const auto upload, start_upload(key, options));
  YARD_TRY(upload->write(content));
  return upload->commit();
}

Status DirectoryStore::remove(std::string_view key) {
  YARD_TRY(check_own_key(key));
  const std::string_view parent = folder_of(key);
  UniqueFd folder(::fcntl(root_fd_.get(), F_DUPFD_CLOEXEC, 0));
  if (!parent.empty()) {
    auto opened = open_beneath(root_fd_.get(), parent, O_RDONLY | O_DIRECTORY, path_of(key));
    if (!opened && opened.error().code == Code::kNotFound) return Ok{};
    if (!opened) return std::move(opened).error();
    folder = *std::move(opened);
  }
  const std::string name(last_part_of(key));
  // EISDIR: a folder is no object, so there was none.
  if (::unlinkat(folder.get(), name.c_str(), 0) != 0 && errno != ENOENT && errno != EISDIR)
    return errno_error(path_of(key), errno);
  open_files_->forget(key);
  remove_empty_parents(key);
  return Ok{};
}

void DirectoryStore::remove_empty_parents(std::string_view key) const {
  for (auto parent = folder_of(key); !parent.empty(); parent = folder_of(parent)) {
    const auto grand = folder_of(parent);
    auto folder = open_beneath(root_fd_.get(), grand.empty() ? "." : grand, O_RDONLY | O_DIRECTORY,
                               path_of(parent));
    if (!folder) return;
    const std::string name(last_part_of(parent));
    if (::unlinkat(folder->get(), name.c_str(), AT_REMOVEDIR) != 0) return;
  }
}

}  // namespace yard::storage
