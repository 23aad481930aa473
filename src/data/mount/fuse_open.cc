// Operations on open files.
#include <fcntl.h>

#include <cerrno>

#include "mount/fuse_open_internal.h"

namespace yard::mount {
namespace {

constexpr size_t kWalksMax = 256;
constexpr uint64_t kWalkFileBytes = 1 << 20;  // of one file, as Content::fetch_ahead() takes

ObjectVersion version_of(const Inodes::File& file) {
  return {file.key(), file.etag, file.size_bytes};
}

}  // namespace

void FuseFiles::op_open(fuse_req_t request, fuse_ino_t inode, fuse_file_info* info) {
  FuseFiles& self = of(request);
  if ((info->flags & O_ACCMODE) != O_RDONLY || (info->flags & O_TRUNC) != 0) {
    fuse_reply_err(request, EROFS);
    return;
  }
  const auto file = self.inodes_.file(inode);
  if (!file) {
    fuse_reply_err(request, self.inodes_.directory_key(inode) ? EISDIR : ESTALE);
    return;
  }
  self.open_count_.add(1);
  if (self.cache_ == nullptr || !self.server_->has_passthrough()) {
    self.open_file(request, inode, *file, *info);
    self.note_walk(*file);
    return;
  }
  // May read all of a cached file, to verify it.
  const PendingPointer pending = FuseServer::of(request).pend(request);
  self.push(FetchQueue::Urgency::kAwaited, [&self, pending, inode, file = *file, info = *info] {
    auto opened = std::make_unique<OpenFile>();
    const fuse_req_t waiting = pending->take();
    if (waiting == nullptr) return;
    if (!self.open_backed(waiting, inode, version_of(file), opened))
      self.open_file(waiting, inode, file, info);
    self.note_walk(file);
  });
}

void FuseFiles::open_file(fuse_req_t request, uint64_t inode, const Inodes::File& file,
                          fuse_file_info info) {
  auto opened = std::make_unique<OpenFile>();
  opened->version = version_of(file);
  opened->inode = inode;
  opened->parent = file.parent;
  opened->handle = content_.open(opened->version);
  OpenFile* const raw = opened.release();
  {
    const std::lock_guard lock(mutex_);
    open_files_.insert(raw);
  }
  info.fh = reinterpret_cast<uint64_t>(raw);
  info.keep_cache = 1;  // a number's content never changes
  info.noflush = 1;
  if (fuse_reply_open(request, &info) == 0) return;
  let_go(*raw);  // the opener was interrupted
}

// Answers the request when the kernel can read the file by itself, or must, since it does already.
bool FuseFiles::open_backed(fuse_req_t request, uint64_t inode, const ObjectVersion& version,
                            std::unique_ptr<OpenFile>& file) {
  std::unique_lock lock(mutex_);
  if (backed_[inode].passthrough_open_count == 0) {
    if (backed_[inode].cached_open_count == 0) {
      lock.unlock();
      const auto whole = cache_->whole_file(version);
      lock.lock();
      Backed& state = backed_[inode];
      if (whole && state.cached_open_count == 0 && state.backing_id == 0)
        state.backing_id = server_->open_backing(whole->get()).value_or(0);
    }
    if (backed_[inode].backing_id == 0) {
      ++backed_[inode].cached_open_count;
      return false;
    }
  }
  Backed& state = backed_[inode];
  ++state.passthrough_open_count;
  file->version = version;
  file->inode = inode;
  file->is_passthrough = true;
  file->handle = content_.open(version);
  OpenFile* const raw = file.release();
  open_files_.insert(raw);
  passthrough_count_.add(1);
  const int backing_id = state.backing_id;
  lock.unlock();
  if (!FuseServer::reply_passthrough(request, reinterpret_cast<uint64_t>(raw), backing_id))
    let_go(*raw);
  return true;
}

void FuseFiles::let_go(OpenFile& file) {
  content_.close(file.handle);
  {
    const std::lock_guard lock(mutex_);
    open_files_.erase(&file);
    if (const auto backed = backed_.find(file.inode); backed != backed_.end()) {
      Backed& state = backed->second;
      --(file.is_passthrough ? state.passthrough_open_count : state.cached_open_count);
      if (state.passthrough_open_count == 0 && state.backing_id != 0) {
        server_->close_backing(state.backing_id);
        state.backing_id = 0;
      }
      if (state.passthrough_open_count <= 0 && state.cached_open_count <= 0) backed_.erase(backed);
    }
  }
  delete &file;
}

void FuseFiles::op_release(fuse_req_t request, fuse_ino_t, fuse_file_info* info) {
  of(request).let_go(*reinterpret_cast<OpenFile*>(info->fh));
  fuse_reply_err(request, 0);
}

void FuseFiles::op_read(fuse_req_t request, fuse_ino_t, size_t size, off_t offset,
                        fuse_file_info* info) {
  FuseFiles& self = of(request);
  const auto& file = *reinterpret_cast<const OpenFile*>(info->fh);
  const PendingPointer pending = FuseServer::of(request).pend(request);
  const auto done = [pending](Result<Content::Pieces> pieces) {
    const fuse_req_t waiting = pending->take();
    if (waiting == nullptr) return;
    if (!pieces) {
      fuse_reply_err(waiting, errno_of_bytes(pieces.error().code));
      return;
    }
    std::vector<iovec> vectors;
    for (const auto& piece : *pieces)
      vectors.push_back({const_cast<std::byte*>(piece.data()), piece.size()});
    fuse_reply_iov(waiting, vectors.data(), static_cast<int>(vectors.size()));
  };
  self.content_.read(file.handle, static_cast<uint64_t>(offset), size, done);
}

// ---- readers that walk a directory

void FuseFiles::note_walk(const Inodes::File& file) {
  const auto position = listing_.position(file.directory, file.name);
  if (!position) return;
  WalkPlan plan;
  Walk* walk = nullptr;
  const std::lock_guard lock(mutex_);
  if (walks_.size() >= kWalksMax && !walks_.contains(file.directory)) walks_.clear();
  walk = &walks_[file.directory];
  plan = walk->on_open(position->number);
  if (plan.count > 0) fetch_walk(file, *walk, *position, plan);
}

void FuseFiles::fetch_walk(const Inodes::File& file, Walk& walk, const Listing::Position& position,
                           const WalkPlan& plan) {
  Listing::PagePointer page = position.page;
  uint64_t page_begin = position.number - position.index;
  uint64_t bytes = 0;
  for (uint64_t number = plan.first_index; number < plan.end_index(); ++number) {
    if (number - page_begin >= page->entries.size()) {
      Listing::PagePointer next =
          page->next_start_after.empty()
              ? nullptr
              : listing_.cached_page(file.directory, page->next_start_after);
      if (!next) {
        if (!page->next_start_after.empty()) prefetch_page(file.directory, page);
        return walk.cut(plan, number);
      }
      page_begin += page->entries.size();
      page = std::move(next);
      if (page->entries.empty()) return walk.cut(plan, number);
    }
    const Entry& entry = page->entries[number - page_begin];
    if (entry.is_directory) continue;
    const uint64_t entry_bytes = std::min(entry.size_bytes, kWalkFileBytes);
    if (bytes > 0 && bytes + entry_bytes > options_.walk_bytes_max) return walk.cut(plan, number);
    if (!content_.fetch_ahead({file.directory + entry.name, entry.etag, entry.size_bytes}))
      return walk.cut(plan, number);
    bytes += entry_bytes;
  }
}

void FuseFiles::prefetch_page(const std::string& directory, const Listing::PagePointer& before) {
  push(FetchQueue::Urgency::kAhead, [this, directory, before] {
    // Its failure is told to the one who needs the page.
    static_cast<void>(listing_.page(directory, before));
  });
}

}  // namespace yard::mount
