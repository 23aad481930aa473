#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "base/log.h"
#include "storage/beneath_internal.h"
#include "storage/directory_store.h"
#include "storage/folder_names_internal.h"
#include "storage/keys.h"

namespace yard::storage {
namespace {

constexpr uint32_t kListPageMax = 1000;  // objects of a page; who asks for more wants all
// Files that are asked about at once, by several threads where they are many.
constexpr size_t kFilesAtOnce = 16'384;
constexpr size_t kFilesWorthThreads = 1024;
constexpr unsigned kThreadsMax = 4;

using Plain = std::optional<ObjectInfo>;

// The object that a plain file of that key is; nullopt: it is none, or something else, or not
// there.
Plain plain_file(int root_fd, const std::string& key) {
  struct stat info = {};
  if (!check_key(key) || ::fstatat(root_fd, key.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0 ||
      !S_ISREG(info.st_mode))
    return std::nullopt;
  return info_of(key, info);
}

bool is_folder(int folder_fd, const dirent& entry) {
  if (entry.d_type != DT_UNKNOWN) return entry.d_type == DT_DIR;
  struct stat info = {};
  return ::fstatat(folder_fd, entry.d_name, &info, AT_SYMLINK_NOFOLLOW) == 0 &&
         S_ISDIR(info.st_mode);
}

class Walk {
 public:
  Walk(const ListedDirectory& directory, const ListRequest& request, PageBuilder& page)
      : root_fd_(directory.root_fd),
        root_(directory.root),
        start_after_(request.start_after),
        is_whole_(request.object_count_max > kListPageMax && request.delimiter.empty()),
        cache_(directory.cache),
        left_out_(directory.left_out),
        page_(page) {}

  // Offers every object under `folder` ("" or "a/b/") to the page, in byte order of the keys.
  Status visit(const std::string& folder) {
    YARD_ASSIGN(const Folder content, read_folder(folder));
    const FolderNames& names = *content.names;
    std::vector<Plain> plain;  // of the names from `plain_begin` on
    size_t plain_begin = 0;
    for (size_t i = first_of(folder, names); i < names.size() && !page_.done(); ++i) {
      const std::string key = folder + std::string(names[i]);
      if (is_whole_ && i >= plain_begin + plain.size()) {
        plain = plain_files(folder, names, i);
        plain_begin = i;
      }
      if (is_whole_ && plain[i - plain_begin])
        add(*std::move(plain[i - plain_begin]));
      else if (!key.ends_with('/'))
        YARD_TRY(offer(key));
      else if (key.size() <= kKeyBytesMax && page_.may_hold(key))
        YARD_TRY(visit(key));
    }
    // The next page goes on here.
    if (!page_.done())
      cache_.drop(folder);
    else if (content.is_settled)
      cache_.keep(folder, content.stamp, content.names);
    return Ok{};
  }

 private:
  struct Folder {
    std::shared_ptr<const FolderNames> names;
    FolderStamp stamp;
    bool is_settled = false;
  };

  size_t first_of(const std::string& folder, const FolderNames& names) const {
    if (!start_after_.starts_with(folder)) return 0;
    return names.position_behind(start_after_.substr(folder.size()));
  }

  Result<Folder> read_folder(const std::string& folder) {
    const std::string relative = folder.empty() ? "." : folder.substr(0, folder.size() - 1);
    auto opened = open_beneath(root_fd_, relative, O_RDONLY | O_DIRECTORY, root_ + "/" + folder);
    const Folder nothing{.names = std::make_shared<FolderNames>(std::vector<std::string>())};
    // Removed, or replaced by a file, since its parent was read.
    if (!opened && opened.error().code == Code::kNotFound && !folder.empty()) return nothing;
    if (!opened && left_out_ && opened.error().code == Code::kInvalidArgument && !folder.empty()) {
      left_out_(folder, opened.error().message);
      return nothing;
    }
    if (!opened) return std::move(opened).error();
    struct stat info = {};
    if (::fstat(opened->get(), &info) != 0) return errno_error(root_ + "/" + folder, errno);
    Folder content{.stamp = FolderStamp::of(info)};
    // As of before the names are read: a change while they are gives the folder another stamp.
    content.is_settled = cache_.is_settled(content.stamp, std::chrono::system_clock::now());
    content.names = cache_.find(folder, content.stamp);
    if (content.names) return content;
    YARD_ASSIGN(auto names, read_names(*std::move(opened), folder));
    content.names = std::make_shared<FolderNames>(std::move(names));
    return content;
  }

  Result<std::vector<std::string>> read_names(UniqueFd opened, const std::string& folder) const {
    std::vector<std::string> names;
    DIR* const stream = ::fdopendir(opened.release());
    if (stream == nullptr) return errno_error(root_ + "/" + folder, errno);
    errno = 0;
    while (const dirent* entry = ::readdir(stream)) {
      const std::string_view name = entry->d_name;
      const bool is_staging = folder.empty() && name == kStagingFolder;
      if (name != "." && name != ".." && !is_staging)
        names.push_back(std::string(name) + (is_folder(::dirfd(stream), *entry) ? "/" : ""));
      errno = 0;
    }
    const int failed = errno;
    ::closedir(stream);
    if (failed != 0) return errno_error(root_ + "/" + folder, failed);
    return names;
  }

  // Of the names from `begin` on, as many as are asked about at once.
  std::vector<Plain> plain_files(const std::string& folder, const FolderNames& names,
                                 size_t begin) const {
    std::vector<Plain> plain(std::min(kFilesAtOnce, names.size() - begin));
    std::atomic<size_t> next = 0;
    const auto work = [&] {
      constexpr size_t kStep = 256;
      for (size_t at; (at = next.fetch_add(kStep)) < plain.size();)
        for (size_t i = at; i < std::min(at + kStep, plain.size()); ++i) {
          const std::string key = folder + std::string(names[begin + i]);
          if (!key.ends_with('/') && page_.may_want(key)) plain[i] = plain_file(root_fd_, key);
        }
    };
    std::vector<std::jthread> others;
    const unsigned thread_count = std::min(std::thread::hardware_concurrency(), kThreadsMax);
    if (plain.size() >= kFilesWorthThreads)
      for (unsigned i = 1; i < thread_count; ++i) others.emplace_back(work);
    work();
    others.clear();  // they end before what they found is handed on
    return plain;
  }

  void add(ObjectInfo info) {
    if (page_.wants(info.key)) page_.add(std::move(info));
  }

  Status offer(const std::string& key) {
    if (!page_.may_want(key)) return Ok{};
    if (!check_key(key)) {
      leave_out(key, "its name cannot be a key", Worth::kAWarning);
      return Ok{};
    }
    auto info = inspect(key);
    if (!info) return std::move(info).error();
    if (*info) add(std::move(**info));
    return Ok{};
  }

  // nullopt for what is no object: gone meanwhile, a socket, a link to a folder or out.
  Result<std::optional<ObjectInfo>> inspect(const std::string& key) {
    struct stat file = {};
    if (::fstatat(root_fd_, key.c_str(), &file, AT_SYMLINK_NOFOLLOW) != 0) {
      if (errno == ENOENT || errno == ENOTDIR) return std::optional<ObjectInfo>();
      return errno_error(root_ + "/" + key, errno);
    }
    if (S_ISLNK(file.st_mode)) {
      auto target = open_beneath(root_fd_, key, O_PATH, root_ + "/" + key);
      if (!target) {
        const bool leads_nowhere = target.error().code == Code::kNotFound;
        leave_out(key, leads_nowhere ? "is a link that leads nowhere" : "is a link that leads out",
                  Worth::kAWarning);
        return std::optional<ObjectInfo>();
      }
      if (::fstat(target->get(), &file) != 0) return errno_error(root_ + "/" + key, errno);
    }
    if (S_ISREG(file.st_mode)) return std::optional(info_of(key, file));
    leave_out(key,
              S_ISDIR(file.st_mode) ? "is a link to a folder, which is not followed"
                                    : "is a pipe, socket or device, not a file",
              Worth::kNothing);
    return std::optional<ObjectInfo>();
  }

  enum class Worth { kNothing, kAWarning };  // where nobody asked to be told
  void leave_out(const std::string& key, const std::string& why, Worth worth) const {
    if (left_out_)
      left_out_(key, why);
    else if (worth == Worth::kAWarning)
      log_warning("{}/{}: not listed: {}", root_, key, why);
  }

  const int root_fd_;
  const std::string& root_;
  const std::string_view start_after_;
  const bool is_whole_;  // no page ends the listing
  FolderCache& cache_;
  const DirectoryStore::LeftOut& left_out_;
  PageBuilder& page_;
};

}  // namespace

Result<ListPage> list_directory(const ListedDirectory& directory, const ListRequest& request) {
  PageBuilder page(request);
  // Start as deep as the prefix allows: its folders need no look at their siblings.
  const std::string_view folder = folder_of(request.prefix);
  std::string start = folder.empty() ? "" : std::string(folder) + "/";
  if (!start.empty() && !check_key(folder)) return page.take();
  if (start.starts_with(std::string(kStagingFolder) + "/")) return page.take();
  YARD_TRY(Walk(directory, request, page).visit(start));
  return page.take();
}

}  // namespace yard::storage
