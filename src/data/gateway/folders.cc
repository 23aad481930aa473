#include "gateway/folders.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>

#include "base/file.h"

namespace yard::gateway {

std::vector<std::string> names_in(int folder_fd) {
  std::vector<std::string> names;
  DIR* const stream = ::fdopendir(::openat(folder_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (stream == nullptr) return names;
  while (const dirent* entry = ::readdir(stream)) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  ::closedir(stream);
  return names;
}

bool remove_empty_folders(int parent_fd, const char* name) {
  if (::unlinkat(parent_fd, name, AT_REMOVEDIR) == 0) return true;
  if (errno != ENOTEMPTY && errno != EEXIST) return false;
  const UniqueFd folder(::openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!folder.valid()) return false;
  for (const std::string& inner : names_in(folder.get()))
    if (!remove_empty_folders(folder.get(), inner.c_str())) return false;
  return ::unlinkat(parent_fd, name, AT_REMOVEDIR) == 0;
}

void remove_tree(int parent_fd, const char* name) {
  if (::unlinkat(parent_fd, name, 0) == 0 || errno == ENOENT) return;
  const UniqueFd folder(::openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!folder.valid()) return;
  for (const std::string& inner : names_in(folder.get())) remove_tree(folder.get(), inner.c_str());
  ::unlinkat(parent_fd, name, AT_REMOVEDIR);
}

std::optional<std::string> read_small_file(int folder_fd, const std::string& name,
                                           size_t size_bytes_max) {
  const UniqueFd file(::openat(folder_fd, name.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  struct stat info = {};
  if (!file.valid() || ::fstat(file.get(), &info) != 0) return std::nullopt;
  if (size_t(info.st_size) > size_bytes_max) {
    errno = EFBIG;
    return std::nullopt;
  }
  std::string text(size_t(info.st_size), '\0');
  const ssize_t size = ::pread(file.get(), text.data(), text.size(), 0);
  if (size < 0) return std::nullopt;
  text.resize(size_t(size));
  return text;
}

}  // namespace yard::gateway
