#include "gateway/bucket.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <mutex>

#include "gateway/key_path.h"
#include "gateway/root.h"
#include "storage/beneath.h"

namespace yard::gateway {
namespace {

using storage::folder_of;
using storage::last_part_of;
using storage::open_beneath;

// A folder made for a put may be taken away by a delete at the same moment; so often at most.
constexpr int kAttemptsMax = 16;

bool is_no_name_here(int errno_value) {
  return errno_value == ENAMETOOLONG || errno_value == EINVAL || errno_value == EILSEQ;
}

enum class FolderState { kOpen, kPathIsTaken, kGone };

// One part of a path below `folder`, made if missing. Replaces `folder` by it.
S3Result<FolderState> enter_part(UniqueFd& folder, int base_fd, const std::string& path) {
  const std::string part(last_part_of(path));
  const bool is_new = ::mkdirat(folder.get(), part.c_str(), 0777) == 0;
  if (!is_new && is_no_name_here(errno)) return FolderState::kPathIsTaken;
  if (!is_new && errno == ENOENT) return FolderState::kGone;
  if (!is_new && errno != EEXIST) return s3_errno(path, errno);
  if (is_new) YARD_TRY(sync_folder(folder.get()));
  auto opened = open_beneath(base_fd, path, O_RDONLY | O_DIRECTORY, path);
  if (opened) {
    folder = *std::move(opened);
    return FolderState::kOpen;
  }
  struct stat info = {};
  if (::fstatat(folder.get(), part.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0)
    return FolderState::kGone;
  // An object, or a link that leads elsewhere.
  if (!S_ISDIR(info.st_mode)) return FolderState::kPathIsTaken;
  return S3Error(std::move(opened).error());
}

S3Result<FolderState> make_parent(int base_fd, std::string_view path, UniqueFd& folder) {
  const std::string_view parent = folder_of(path);
  const std::string existing(parent.empty() ? "." : parent);
  if (auto opened = open_beneath(base_fd, existing, O_RDONLY | O_DIRECTORY, existing)) {
    folder = *std::move(opened);
    return FolderState::kOpen;
  }
  folder = UniqueFd(::fcntl(base_fd, F_DUPFD_CLOEXEC, 0));
  if (!folder.valid()) return s3_errno(existing, errno);
  for (size_t end = 0; end < parent.size();) {
    end = std::min(parent.find('/', end + 1), parent.size());
    YARD_ASSIGN(const FolderState state,
                enter_part(folder, base_fd, std::string(parent.substr(0, end))));
    if (state != FolderState::kOpen) return state;
  }
  return FolderState::kOpen;
}

void remove_empty_parents(int base_fd, std::string_view path) {
  for (auto parent = folder_of(path); !parent.empty(); parent = folder_of(parent)) {
    const std::string grand(folder_of(parent).empty() ? "." : folder_of(parent));
    auto folder = open_beneath(base_fd, grand, O_RDONLY | O_DIRECTORY, grand);
    if (!folder) return;
    const std::string name(last_part_of(parent));
    if (::unlinkat(folder->get(), name.c_str(), AT_REMOVEDIR) != 0) return;
  }
}

// Whether there was such a file; a folder is no object.
S3Result<bool> unlink_object(int base_fd, const std::string& path) {
  const std::string parent(folder_of(path).empty() ? "." : folder_of(path));
  auto folder = open_beneath(base_fd, parent, O_RDONLY | O_DIRECTORY, path);
  if (!folder &&
      (folder.error().code == Code::kNotFound || folder.error().code == Code::kInvalidArgument))
    return false;
  if (!folder) return S3Error(std::move(folder).error());
  const std::string name(last_part_of(path));
  if (::unlinkat(folder->get(), name.c_str(), 0) != 0) {
    if (errno == ENOENT || errno == EISDIR || is_no_name_here(errno)) return false;
    return s3_errno(path, errno);
  }
  YARD_TRY(sync_folder(folder->get()));
  remove_empty_parents(base_fd, path);
  return true;
}

bool is_regular(const UniqueFd& folder, const std::string& name) {
  struct stat info = {};
  return ::fstatat(folder.get(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 &&
         S_ISREG(info.st_mode);
}

// What a file that cannot be opened is to a client: nothing, unless it is one that the gateway may
// not read.
S3Error unopened(Error error, int base_fd, std::string_view path, const std::string& name) {
  if (error.code == Code::kNotFound) return s3::kNoSuchKey;
  if (error.code != Code::kInvalidArgument) return S3Error(std::move(error));
  struct stat info = {};
  const auto known = open_beneath(base_fd, path, O_PATH, name);
  const bool is_file = known && ::fstat(known->get(), &info) == 0 && S_ISREG(info.st_mode);
  return is_file ? s3::kAccessDenied : s3::kNoSuchKey;
}

std::optional<UniqueFd> open_folder(int base_fd, const std::string& path) {
  auto folder = open_beneath(base_fd, path.empty() ? "." : path, O_RDONLY | O_DIRECTORY, path);
  if (!folder) return std::nullopt;
  return *std::move(folder);
}

}  // namespace

std::chrono::system_clock::time_point ObjectFile::modified() const {
  using namespace std::chrono;
  return system_clock::time_point(floor<seconds>(nanoseconds(stamp.mtime_ns)));
}

S3Result<ObjectFile> Bucket::open(std::string_view key) const {
  auto plain = open_plain(key);
  if (plain || plain.error().code != s3::kNoSuchKey.code) return plain;
  return open_odd(key);
}

S3Result<ObjectFile> Bucket::open_plain(std::string_view key) const {
  if (!is_plain_path(key)) return s3::kNoSuchKey;
  // O_NONBLOCK: a FIFO of that name must not hold us; regular files ignore it.
  auto file = open_beneath(folder_.get(), key, O_RDONLY | O_NONBLOCK, name_);
  if (file) return load(*std::move(file));
  return unopened(std::move(file).error(), folder_.get(), key, name_);
}

S3Result<ObjectFile> Bucket::open_odd(std::string_view key) const {
  const UniqueFd base(
      ::openat(root_->odd().get(), name_.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!base.valid()) return s3::kNoSuchKey;
  const std::string path = odd_path(key);
  auto file = open_beneath(base.get(), path, O_RDONLY | O_NONBLOCK, name_);
  if (file) return load(*std::move(file));
  return unopened(std::move(file).error(), base.get(), path, name_);
}

S3Result<ObjectFile> Bucket::load(UniqueFd file) const {
  struct stat info = {};
  if (::fstat(file.get(), &info) != 0) return s3_errno(name_, errno);
  if (!S_ISREG(info.st_mode)) return s3::kNoSuchKey;
  ObjectFile object{std::move(file), stamp_of(info), {}};
  if (auto meta = root_->meta().find(object.fd.get(), object.stamp))
    object.meta = *std::move(meta);
  else
    object.meta.etag = etag_of(object.stamp);
  return object;
}

S3Status Bucket::store(TempFile file, const ObjectMeta& meta, std::string_view key,
                       const Precondition& precondition) {
  YARD_ASSIGN(const FileStamp stamp, root_->meta().attach(file.fd(), meta));
  S3Status stored = file.sync();
  if (stored) stored = commit(std::move(file), key, precondition);
  if (!stored) root_->meta().forget(stamp);
  return stored;
}

S3Status Bucket::commit(TempFile file, std::string_view key, const Precondition& precondition) {
  const std::scoped_lock lock(root_->lock_of(name_, key));
  for (int attempt = 0; attempt < kAttemptsMax; ++attempt) {
    auto existing = open(key);
    if (!existing && existing.error().code != s3::kNoSuchKey.code)
      return std::move(existing).error();
    YARD_TRY(precondition(existing ? &*existing : nullptr));
    YARD_ASSIGN(const Placed placed, place_anywhere(file, key,
                                                    existing ? TempFile::Existing::kReplaced
                                                             : TempFile::Existing::kKept));
    if (placed == Placed::kAppeared) continue;
    if (existing) root_->meta().forget(existing->stamp);
    return Ok{};
  }
  return s3::kServiceUnavailable;
}

S3Result<Bucket::Placed> Bucket::place_anywhere(TempFile& file, std::string_view key,
                                                TempFile::Existing existing) const {
  if (is_plain_path(key)) {
    YARD_ASSIGN(const Placed placed, place(file, folder_.get(), std::string(key), existing));
    if (placed == Placed::kYes && existing == TempFile::Existing::kReplaced)
      YARD_TRY(unlink_odd(key));
    if (placed != Placed::kPathIsTaken) return placed;
  }
  YARD_ASSIGN(const UniqueFd odd, make_odd_folder());
  YARD_ASSIGN(const Placed placed, place(file, odd.get(), odd_path(key), existing));
  if (placed != Placed::kPathIsTaken) return placed;
  return S3Error(Error{Code::kInternal, "a path among .yard/odd/" + name_ + " is taken"});
}

S3Result<Bucket::Placed> Bucket::place(TempFile& file, int base_fd, const std::string& path,
                                       TempFile::Existing existing) const {
  const std::string name(last_part_of(path));
  for (int attempt = 0; attempt < kAttemptsMax; ++attempt) {
    UniqueFd parent;
    YARD_ASSIGN(const FolderState state, make_parent(base_fd, path, parent));
    if (state == FolderState::kPathIsTaken) return Placed::kPathIsTaken;
    if (state == FolderState::kGone) continue;
    if (file.rename_to(parent.get(), name, existing)) {
      YARD_TRY(sync_folder(parent.get()));
      return Placed::kYes;
    }
    const int why = errno;
    if (why == ENOENT) continue;
    if (is_no_name_here(why)) return Placed::kPathIsTaken;
    if (why != EISDIR && why != ENOTEMPTY && why != EEXIST) return s3_errno(name_, why);
    // An empty folder is no object; one with something in it keeps its name.
    if (::unlinkat(parent.get(), name.c_str(), AT_REMOVEDIR) == 0 || errno == ENOENT) continue;
    if (errno != ENOTDIR) return Placed::kPathIsTaken;
    if (is_regular(parent, name)) return Placed::kAppeared;
    existing = TempFile::Existing::kReplaced;  // a link that leads out, a pipe: no object
  }
  return s3::kServiceUnavailable;
}

S3Result<UniqueFd> Bucket::make_odd_folder() const {
  if (::mkdirat(root_->odd().get(), name_.c_str(), 0777) == 0)
    YARD_TRY(sync_folder(root_->odd().get()));
  UniqueFd folder(
      ::openat(root_->odd().get(), name_.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!folder.valid()) return s3_errno(".yard/odd/" + name_, errno);
  return folder;
}

S3Result<bool> Bucket::remove(std::string_view key, const Precondition& precondition) {
  const std::scoped_lock lock(root_->lock_of(name_, key));
  auto existing = open(key);
  if (!existing && existing.error().code != s3::kNoSuchKey.code) return std::move(existing).error();
  YARD_TRY(precondition(existing ? &*existing : nullptr));
  bool was_there = false;
  if (is_plain_path(key)) {
    YARD_ASSIGN(was_there, unlink_object(folder_.get(), std::string(key)));
  }
  YARD_ASSIGN(const bool was_odd, unlink_odd(key));
  if (existing) root_->meta().forget(existing->stamp);
  return was_there || was_odd;
}

S3Result<bool> Bucket::unlink_odd(std::string_view key) const {
  const UniqueFd base(
      ::openat(root_->odd().get(), name_.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!base.valid()) return false;
  return unlink_object(base.get(), odd_path(key));
}

std::optional<UniqueFd> Bucket::plain_folder(std::string_view folder) const {
  if (folder.empty()) return open_folder(folder_.get(), "");
  folder.remove_suffix(1);
  if (!is_plain_path(folder)) return std::nullopt;
  return open_folder(folder_.get(), std::string(folder));
}

std::optional<UniqueFd> Bucket::odd_folder(std::string_view folder) const {
  auto base = open_folder(root_->odd().get(), name_);
  if (!base || folder.empty()) return base;
  return open_folder(base->get(), odd_folder_path(folder));
}

}  // namespace yard::gateway
