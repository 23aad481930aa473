#include <algorithm>

#include "storage/folder_names_internal.h"

namespace yard::storage {
namespace {

// Smaller folders are read and sorted as fast as they are looked up.
constexpr size_t kWorthKeeping = 1000;

int64_t to_ns(const timespec& time) {
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

}  // namespace

FolderNames::FolderNames(std::vector<std::string> names) {
  std::ranges::sort(names);
  size_t bytes = 0;
  for (const std::string& name : names) bytes += name.size();
  text_.reserve(bytes);  // so that it never moves
  names_.reserve(names.size());
  for (const std::string& name : names) {
    text_ += name;
    names_.emplace_back(text_.data() + text_.size() - name.size(), name.size());
  }
}

size_t FolderNames::position_behind(std::string_view after) const {
  size_t at = size_t(std::ranges::upper_bound(names_, after) - names_.begin());
  // No name sorts between a folder's and what is in it.
  if (at > 0 && names_[at - 1].ends_with('/') && after.starts_with(names_[at - 1])) --at;
  return at;
}

FolderStamp FolderStamp::of(const struct stat& info) {
  return {info.st_dev, info.st_ino, to_ns(info.st_mtim), to_ns(info.st_ctim)};
}

bool FolderCache::is_settled(const FolderStamp& stamp,
                             std::chrono::system_clock::time_point now) const {
  const std::chrono::nanoseconds changed(std::max(stamp.mtime_ns, stamp.ctime_ns));
  return now.time_since_epoch() - changed > settle_;
}

std::shared_ptr<const FolderNames> FolderCache::find(const std::string& folder,
                                                     const FolderStamp& stamp) {
  const std::scoped_lock lock(mutex_);
  const auto found = std::ranges::find(kept_, folder, &Kept::folder);
  if (found == kept_.end() || found->stamp != stamp) return nullptr;
  kept_.splice(kept_.begin(), kept_, found);
  return found->names;
}

void FolderCache::keep(const std::string& folder, const FolderStamp& stamp,
                       std::shared_ptr<const FolderNames> names) {
  if (names->size() < kWorthKeeping || names->memory_bytes() > memory_bytes_max_) return;
  const std::scoped_lock lock(mutex_);
  drop_locked(folder);
  memory_bytes_ += names->memory_bytes();
  kept_.push_front({folder, stamp, std::move(names)});
  while (memory_bytes_ > memory_bytes_max_) {
    memory_bytes_ -= kept_.back().names->memory_bytes();
    kept_.pop_back();
  }
}

void FolderCache::drop(const std::string& folder) {
  const std::scoped_lock lock(mutex_);
  drop_locked(folder);
}

void FolderCache::drop_locked(const std::string& folder) {
  const auto found = std::ranges::find(kept_, folder, &Kept::folder);
  if (found == kept_.end()) return;
  memory_bytes_ -= found->names->memory_bytes();
  kept_.erase(found);
}

size_t FolderCache::memory_bytes() const {
  const std::scoped_lock lock(mutex_);
  return memory_bytes_;
}

}  // namespace yard::storage
