// Operations on open directories.
#include <cerrno>
#include <cstring>

#include "mount/fuse_open_internal.h"

namespace yard::mount {

void FuseFiles::op_opendir(fuse_req_t request, fuse_ino_t inode, fuse_file_info* info) {
  FuseFiles& self = of(request);
  auto key = self.inodes_.directory_key(inode);
  if (!key) {
    fuse_reply_err(request, self.inodes_.attributes(inode) ? ENOTDIR : ESTALE);
    return;
  }
  // Shared with what still reads for an interrupted request when the directory is closed.
  auto held = std::make_unique<OpenDirectoryPointer>(std::make_shared<OpenDirectory>());
  (*held)->inode = inode;
  (*held)->key = *std::move(key);
  info->fh = reinterpret_cast<uint64_t>(held.get());
  OpenDirectoryPointer* const raw = held.release();
  {
    const std::lock_guard lock(self.mutex_);
    self.open_directories_.insert(raw);
  }
  if (fuse_reply_open(request, info) != 0) self.let_go(raw);
}

void FuseFiles::let_go(OpenDirectoryPointer* directory) {
  {
    const std::lock_guard lock(mutex_);
    open_directories_.erase(directory);
  }
  delete directory;
}

void FuseFiles::op_releasedir(fuse_req_t request, fuse_ino_t, fuse_file_info* info) {
  of(request).let_go(reinterpret_cast<OpenDirectoryPointer*>(info->fh));
  fuse_reply_err(request, 0);
}

void FuseFiles::op_readdir(fuse_req_t request, fuse_ino_t, size_t size, off_t offset,
                           fuse_file_info* info) {
  of(request).read_directory(request, *reinterpret_cast<OpenDirectoryPointer*>(info->fh), size,
                             static_cast<uint64_t>(offset), false);
}

void FuseFiles::op_readdirplus(fuse_req_t request, fuse_ino_t, size_t size, off_t offset,
                               fuse_file_info* info) {
  of(request).read_directory(request, *reinterpret_cast<OpenDirectoryPointer*>(info->fh), size,
                             static_cast<uint64_t>(offset), true);
}

namespace {

// Entries as the kernel wants them, until `size` bytes are full.
class EntryBuffer {
 public:
  EntryBuffer(fuse_req_t request, size_t size) : request_(request), bytes_(size) {}

  // False: it does not fit.
  bool add(const char* name, const struct stat& info, uint64_t next) {
    const size_t used = fuse_add_direntry(request_, bytes_.data() + used_, bytes_.size() - used_,
                                          name, &info, static_cast<off_t>(next));
    return keep(used);
  }
  bool add_plus(const char* name, const fuse_entry_param& entry, uint64_t next) {
    const size_t used =
        fuse_add_direntry_plus(request_, bytes_.data() + used_, bytes_.size() - used_, name, &entry,
                               static_cast<off_t>(next));
    return keep(used);
  }
  std::span<const char> bytes() const { return {bytes_.data(), used_}; }

 private:
  bool keep(size_t used) {
    if (used > bytes_.size() - used_) return false;
    used_ += used;
    return true;
  }
  const fuse_req_t request_;
  std::vector<char> bytes_;
  size_t used_ = 0;
};

}  // namespace

// Whether the entries from `offset` on can be told without asking the store.
bool FuseFiles::is_at_hand(OpenDirectory& directory, uint64_t offset) {
  const std::unique_lock lock(directory.mutex, std::try_to_lock);
  if (!lock.owns_lock()) return false;  // an interrupted request's task asks the store still
  if (offset < 2 && (!directory.page || directory.page_begin > 2)) {
    directory.page = listing_.cached_page(directory.key, "");
    directory.page_begin = 2;
  }
  if (!directory.page || (offset >= 2 && offset < directory.page_begin)) return false;
  const uint64_t end = directory.page_begin + directory.page->entries.size();
  if (offset < end) return true;
  return directory.page->next_start_after.empty() ||
         (offset == end && listing_.cached_page(directory.key, directory.page->next_start_after));
}

void FuseFiles::read_directory(fuse_req_t request, const OpenDirectoryPointer& opened, size_t size,
                               uint64_t offset, bool plus) {
  const auto read = [this, opened, size, offset, plus](fuse_req_t waiting) {
    OpenDirectory& directory = *opened;
    const std::lock_guard lock(directory.mutex);
    if (const Status found = seek_directory(directory, offset); !found) {
      fuse_reply_err(waiting, errno_of(found.error().code));
      return;
    }
    EntryBuffer buffer(waiting, size);
    std::vector<uint64_t> held;
    uint64_t at = offset;
    const auto add = [&](const char* name, const Attributes& shown, const Entry* entry) {
      if (!plus) return buffer.add(name, stat_of(shown), at + 1);
      fuse_entry_param param = {};
      param.attr = stat_of(shown);
      // An entry without a number is only a name: the kernel asks for it when somebody wants it.
      if (entry != nullptr && inodes_.count() < options_.inode_count_max) {
        const auto known = entry_of(directory.inode, {*entry, directory.page->expires});
        if (known) param = *known;
      }
      const bool fits = buffer.add_plus(name, param, at + 1);
      if (param.ino != 0 && fits) held.push_back(param.ino);
      if (param.ino != 0 && !fits) inodes_.release(param.ino, 1);
      return fits;
    };
    const Attributes own = inodes_.attributes(directory.inode).value_or(Attributes{});
    if (at == 0 && add(".", own, nullptr)) ++at;
    if (at == 1 && add("..", {.visible_inode = kRootInode, .is_directory = true}, nullptr)) ++at;
    while (at >= 2 && directory.page) {
      const uint64_t index = at - directory.page_begin;
      if (index >= directory.page->entries.size()) {
        // Of a page at a time, unless it showed nothing.
        if (directory.page->next_start_after.empty() || !buffer.bytes().empty()) break;
        if (!turn_page(directory)) break;
        continue;
      }
      const Entry& entry = directory.page->entries[index];
      const Attributes shown = inodes_.attributes_of(directory.key, entry);
      if (!add(entry.name.c_str(), shown, &entry)) break;
      ++at;
    }
    if (fuse_reply_buf(waiting, buffer.bytes().data(), buffer.bytes().size()) != 0)
      for (const uint64_t inode : held) inodes_.release(inode, 1);
    trim_inodes();
  };
  if (is_at_hand(*opened, offset)) return read(request);
  const PendingPointer pending = FuseServer::of(request).pend(request);
  push(FetchQueue::Urgency::kAwaited, [this, pending, opened, offset, read] {
    // Ask the store before the request is taken, so that an interrupt is answered meanwhile.
    Status found = Ok{};
    {
      const std::lock_guard lock(opened->mutex);
      found = seek_directory(*opened, offset);
    }
    const fuse_req_t waiting = pending->take();
    if (waiting == nullptr) return;
    if (found)
      read(waiting);
    else
      fuse_reply_err(waiting, errno_of(found.error().code));
  });
}

// Turns to the page that holds entry `offset`, or to the last one.
Status FuseFiles::seek_directory(OpenDirectory& directory, uint64_t offset) {
  if (!directory.page || offset < directory.page_begin) {
    YARD_ASSIGN(directory.page, listing_.page(directory.key, nullptr));
    directory.page_begin = 2;
    if (!directory.page->next_start_after.empty()) prefetch_page(directory.key, directory.page);
  }
  while (offset >= directory.page_begin + directory.page->entries.size() &&
         !directory.page->next_start_after.empty())
    YARD_TRY(turn_page(directory));
  return Ok{};
}

Status FuseFiles::turn_page(OpenDirectory& directory) {
  YARD_ASSIGN(Listing::PagePointer next, listing_.page(directory.key, directory.page));
  directory.page_begin += directory.page->entries.size();
  directory.page = std::move(next);
  if (!directory.page->next_start_after.empty()) prefetch_page(directory.key, directory.page);
  return Ok{};
}

}  // namespace yard::mount
