#include "channels/download_cache.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstdio>

#include "base/file.h"

namespace yard::channels {
namespace {

bool is_same(const timespec& a, const timespec& b) {
  return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

}  // namespace

std::optional<DownloadCache::File> DownloadCache::look(const std::string& path) {
  struct stat info = {};
  if (::lstat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return std::nullopt;
  return File{.path = path,
              .etag = {},
              .device = info.st_dev,
              .inode = info.st_ino,
              .size_bytes = uint64_t(info.st_size),
              .modified = info.st_mtim,
              .changed = info.st_ctim};
}

bool DownloadCache::is_unchanged(const File& file) {
  const auto now = look(file.path);
  return now && now->device == file.device && now->inode == file.inode &&
         now->size_bytes == file.size_bytes && is_same(now->modified, file.modified) &&
         is_same(now->changed, file.changed);
}

void DownloadCache::note(const std::string& url, const std::string& etag, const std::string& path) {
  // Without a version nobody can tell whether it is still the one.
  auto file = etag.empty() ? std::nullopt : look(path);
  if (!file) return;
  file->etag = etag;
  const std::lock_guard lock(mutex_);
  files_.emplace(url, *std::move(file));
}

bool DownloadCache::take(const std::string& url, const std::string& etag, const std::string& path) {
  const std::lock_guard lock(mutex_);
  const auto [begin, end] = files_.equal_range(url);
  for (auto it = begin; it != end; ++it) {
    // One that lies where it was taken to is somebody's already.
    if (it->second.etag != etag || it->second.path == path || !is_unchanged(it->second)) continue;
    if (::rename(it->second.path.c_str(), path.c_str()) != 0) continue;
    auto moved = look(path);
    files_.erase(it);
    if (!moved) return false;
    moved->etag = etag;
    files_.emplace(url, *std::move(moved));
    return true;
  }
  return false;
}

Status DownloadCache::move_to(const std::string& folder) {
  YARD_TRY(make_directories(folder));
  const std::lock_guard lock(mutex_);
  std::multimap<std::string, File> kept;
  for (auto& [url, file] : files_) {
    if (!is_unchanged(file)) continue;
    const std::string path = folder + "/" + std::to_string(number_++);
    if (::rename(file.path.c_str(), path.c_str()) != 0) continue;
    auto moved = look(path);
    if (!moved) continue;
    moved->etag = file.etag;
    kept.emplace(url, *std::move(moved));
  }
  files_ = std::move(kept);
  return Ok{};
}

void DownloadCache::rebase(const std::string& from, const std::string& to) {
  const std::lock_guard lock(mutex_);
  for (auto& [url, file] : files_)
    if (file.path.starts_with(from + "/")) file.path = to + file.path.substr(from.size());
}

size_t DownloadCache::size() const {
  const std::lock_guard lock(mutex_);
  return files_.size();
}

}  // namespace yard::channels
