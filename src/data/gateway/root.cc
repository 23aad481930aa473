#include "gateway/root.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <functional>
#include <tuple>

#include "gateway/folders.h"

namespace yard::gateway {
namespace {

constexpr const char* kOwnFolder = ".yard";

bool is_lower_or_digit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

bool looks_like_ipv4(std::string_view name) {
  return std::ranges::count(name, '.') == 3 &&
         std::ranges::all_of(name, [](char c) { return c == '.' || (c >= '0' && c <= '9'); });
}

Result<UniqueFd> make_folder(int parent_fd, const char* name, const std::string& path) {
  if (::mkdirat(parent_fd, name, 0777) != 0 && errno != EEXIST) return errno_error(path, errno);
  UniqueFd folder(::openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!folder.valid()) return errno_error(path, errno);
  return folder;
}

std::chrono::system_clock::time_point birth_of(int parent_fd, const char* name) {
  struct statx info = {};
  if (::statx(parent_fd, name, AT_SYMLINK_NOFOLLOW, STATX_BTIME | STATX_CTIME, &info) != 0)
    return {};
  const auto& time = (info.stx_mask & STATX_BTIME) != 0 ? info.stx_btime : info.stx_ctime;
  return std::chrono::system_clock::from_time_t(time.tv_sec);
}

bool is_folder(int parent_fd, const char* name) {
  struct stat info = {};
  return ::fstatat(parent_fd, name, &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(info.st_mode);
}

}  // namespace

struct Root::Folders {
  UniqueFd root;
  UniqueFd lock;
  UniqueFd tmp;
  UniqueFd meta;
  UniqueFd odd;
  UniqueFd uploads;
  UniqueFd settings;
};

bool is_new_bucket_name(std::string_view name) {
  if (name.size() < 3 || name.size() > 63 || looks_like_ipv4(name)) return false;
  if (!is_lower_or_digit(name.front()) || !is_lower_or_digit(name.back())) return false;
  if (name.find("..") != name.npos) return false;
  return std::ranges::all_of(name,
                             [](char c) { return is_lower_or_digit(c) || c == '-' || c == '.'; });
}

bool is_served_name(std::string_view name) {
  return !name.empty() && name.size() <= 255 && name.front() != '.' &&
         std::ranges::all_of(name, [](char c) {
           return is_lower_or_digit(c) || (c >= 'A' && c <= 'Z') || c == '-' || c == '.' ||
                  c == '_';
         });
}

namespace {

bool is_served_folder(const std::filesystem::path& path) {
  std::error_code unknown;
  return std::filesystem::exists(path / kOwnFolder / "lock", unknown);
}

}  // namespace

Status check_not_nested(const std::string& path) {
  std::error_code failed;
  const std::filesystem::path whole = std::filesystem::canonical(path, failed);
  if (failed) return Ok{};  // open() tells
  for (auto above = whole; above.has_relative_path();) {
    above = above.parent_path();
    if (is_served_folder(above))
      return Error{Code::kInvalidArgument,
                   fmt::format("{}: lies in {}, which is served itself: this folder is in a bucket "
                               "there",
                               path, above.string())};
  }
  for (std::filesystem::directory_iterator each(whole, failed); !failed && each != end(each);
       each.increment(failed))
    if (is_served_folder(each->path()))
      return Error{Code::kInvalidArgument,
                   fmt::format("{}: the folder {} in it was served itself; remove {} to make it a "
                               "bucket",
                               path, each->path().filename().string(),
                               (each->path() / kOwnFolder).string())};
  return Ok{};
}

Root::Root(Folders folders, MetaStore::Place meta_place)
    : root_(std::move(folders.root)),
      lock_(std::move(folders.lock)),
      tmp_(std::move(folders.tmp)),
      odd_(std::move(folders.odd)),
      uploads_(std::move(folders.uploads)),
      settings_(std::move(folders.settings)),
      meta_(std::move(folders.meta), meta_place) {}

Result<std::unique_ptr<Root>> Root::open(const std::string& path, MetaStore::Place meta_place) {
  Folders folders;
  folders.root = UniqueFd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folders.root.valid() && errno == ENOTDIR)
    return Error{Code::kInvalidArgument, path + ": not a directory"};
  if (!folders.root.valid()) return errno_error(path, errno);
  YARD_TRY(check_not_nested(path));
  const std::string own = path + "/" + kOwnFolder;
  YARD_ASSIGN(const UniqueFd own_folder, make_folder(folders.root.get(), kOwnFolder, own));
  // Others on this machine have no business with secrets and half uploads.
  if (::fchmod(own_folder.get(), 0700) != 0) return errno_error(own, errno);
  folders.lock =
      UniqueFd(::openat(own_folder.get(), "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!folders.lock.valid()) return errno_error(own + "/lock", errno);
  if (::flock(folders.lock.get(), LOCK_EX | LOCK_NB) != 0)
    return Error{Code::kUnavailable, path + ": another gateway serves this folder"};
  for (const auto& [name, folder] :
       {std::tuple("tmp", &folders.tmp), std::tuple("meta", &folders.meta),
        std::tuple("odd", &folders.odd), std::tuple("uploads", &folders.uploads),
        std::tuple("buckets", &folders.settings)}) {
    YARD_ASSIGN(*folder, make_folder(own_folder.get(), name, own + "/" + name));
  }
  for (const std::string& left : names_in(folders.tmp.get()))
    remove_tree(folders.tmp.get(), left.c_str());
  return std::unique_ptr<Root>(new Root(std::move(folders), meta_place));
}

S3Result<std::vector<BucketInfo>> Root::list_buckets() const {
  std::vector<BucketInfo> buckets;
  for (std::string& name : names_in(root_.get())) {
    if (!is_served_name(name) || !is_folder(root_.get(), name.c_str())) continue;
    const auto created = birth_of(root_.get(), name.c_str());
    buckets.push_back({std::move(name), created});
  }
  std::ranges::sort(buckets, {}, &BucketInfo::name);
  return buckets;
}

S3Result<Bucket> Root::bucket(std::string_view name) {
  if (!is_served_name(name)) return s3::kNoSuchBucket;
  std::string text(name);
  UniqueFd folder(
      ::openat(root_.get(), text.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (folder.valid()) return Bucket(*this, std::move(text), std::move(folder));
  if (errno == ENOENT || errno == ENOTDIR || errno == ELOOP)
    return S3Error(s3::kNoSuchBucket).with("BucketName", std::move(text));
  return s3_errno(text, errno);
}

S3Status Root::create_bucket(std::string_view name) {
  if (!is_new_bucket_name(name)) return s3::kInvalidBucketName;
  const std::string text(name);
  if (is_folder(root_.get(), text.c_str())) return s3::kBucketAlreadyOwnedByYou;
  // Of a bucket whose folder somebody removed by hand.
  remove_tree(odd_.get(), text.c_str());
  remove_tree(settings_.get(), text.c_str());
  if (::mkdirat(root_.get(), text.c_str(), 0777) != 0) {
    if (errno == EEXIST) return s3::kBucketAlreadyOwnedByYou;
    return s3_errno(text, errno);
  }
  return sync_folder(root_.get());
}

S3Status Root::delete_bucket(std::string_view name) {
  YARD_TRY(bucket(name));
  const std::string text(name);
  if (is_folder(odd_.get(), text.c_str()) && !remove_empty_folders(odd_.get(), text.c_str()))
    return s3::kBucketNotEmpty;
  if (!remove_empty_folders(root_.get(), text.c_str())) {
    if (errno == ENOTDIR || errno == ENOTEMPTY || errno == EEXIST) return s3::kBucketNotEmpty;
    return s3_errno(text, errno);
  }
  remove_tree(settings_.get(), text.c_str());
  return sync_folder(root_.get());
}

S3Result<TempFile> Root::make_temp_file() {
  return TempFile::make(tmp_.get());
}

std::mutex& Root::lock_of(std::string_view bucket, std::string_view key) {
  const size_t hash =
      std::hash<std::string_view>()(key) * 31 + std::hash<std::string_view>()(bucket);
  return locks_[hash % locks_.size()];
}

}  // namespace yard::gateway
