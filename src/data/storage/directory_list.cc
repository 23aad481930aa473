#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "base/log.h"
#include "storage/beneath_internal.h"
#include "storage/directory_store.h"
#include "storage/keys.h"

namespace yard::storage {
namespace {

// One name in a folder. A folder's name ends in '/', so that sorting names sorts whole keys.
struct Entry {
  std::string name;
  bool is_folder = false;
};

bool is_folder(int folder_fd, const dirent& entry) {
  if (entry.d_type != DT_UNKNOWN) return entry.d_type == DT_DIR;
  struct stat info = {};
  return ::fstatat(folder_fd, entry.d_name, &info, AT_SYMLINK_NOFOLLOW) == 0 &&
         S_ISDIR(info.st_mode);
}

class Walk {
 public:
  Walk(int root_fd, const std::string& root, PageBuilder& page)
      : root_fd_(root_fd), root_(root), page_(page) {}

  // Offers every object under `folder` ("" or "a/b/") to the page, in byte order of the keys.
  Status visit(const std::string& folder) {
    YARD_ASSIGN(const std::vector<Entry> entries, read_folder(folder));
    for (const Entry& entry : entries) {
      if (page_.done()) return Ok{};
      const std::string key = folder + entry.name;
      if (entry.is_folder) {
        if (key.size() <= kKeyBytesMax && page_.may_hold(key)) YARD_TRY(visit(key));
      } else {
        YARD_TRY(offer(key));
      }
    }
    return Ok{};
  }

 private:
  Result<std::vector<Entry>> read_folder(const std::string& folder) {
    const std::string relative = folder.empty() ? "." : folder.substr(0, folder.size() - 1);
    auto opened = open_beneath(root_fd_, relative, O_RDONLY | O_DIRECTORY, root_ + "/" + folder);
    std::vector<Entry> entries;
    // Removed, or replaced by a file, since its parent was read.
    if (!opened && opened.error().code == Code::kNotFound && !folder.empty()) return entries;
    if (!opened) return std::move(opened).error();
    DIR* const stream = ::fdopendir(opened->release());
    if (stream == nullptr) return errno_error(root_ + "/" + folder, errno);
    errno = 0;
    while (const dirent* entry = ::readdir(stream)) {
      const std::string_view name = entry->d_name;
      const bool is_staging = folder.empty() && name == kStagingFolder;
      if (name != "." && name != ".." && !is_staging) {
        const bool folder_entry = is_folder(::dirfd(stream), *entry);
        entries.push_back({std::string(name) + (folder_entry ? "/" : ""), folder_entry});
      }
      errno = 0;
    }
    const int failed = errno;
    ::closedir(stream);
    if (failed != 0) return errno_error(root_ + "/" + folder, failed);
    std::ranges::sort(entries, {}, &Entry::name);
    return entries;
  }

  Status offer(const std::string& key) {
    if (!page_.may_want(key)) return Ok{};
    if (!check_key(key)) {
      log_warning("{}/{}: not listed: its name cannot be a key", root_, key);
      return Ok{};
    }
    auto info = inspect(key);
    if (!info) return std::move(info).error();
    if (*info && page_.wants(key)) page_.add(std::move(**info));
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
        log_warning("not listed: {}", target.error().message);
        return std::optional<ObjectInfo>();
      }
      if (::fstat(target->get(), &file) != 0) return errno_error(root_ + "/" + key, errno);
    }
    if (!S_ISREG(file.st_mode)) return std::optional<ObjectInfo>();
    return std::optional(info_of(key, file));
  }

  const int root_fd_;
  const std::string& root_;
  PageBuilder& page_;
};

}  // namespace

Result<ListPage> list_directory(int root_fd, const std::string& root, const ListRequest& request) {
  PageBuilder page(request);
  // Start as deep as the prefix allows: its folders need no look at their siblings.
  const std::string_view folder = folder_of(request.prefix);
  std::string start = folder.empty() ? "" : std::string(folder) + "/";
  if (!start.empty() && !check_key(folder)) return page.take();
  if (start.starts_with(std::string(kStagingFolder) + "/")) return page.take();
  YARD_TRY(Walk(root_fd, root, page).visit(start));
  return page.take();
}

}  // namespace yard::storage
