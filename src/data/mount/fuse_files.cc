#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "mount/fuse_open_internal.h"
#include "telemetry/metric_names.h"

namespace yard::mount {
namespace {

// A number's attributes never change; see inodes.h.
constexpr double kAttributeSeconds = 24 * 3600;
constexpr uint32_t kReadBytesMax = 1 << 20;
constexpr uint16_t kRequestsAtOnce = 512;
constexpr size_t kNameBytesMax = 1024;
constexpr size_t kTrimAtOnce = 100;
constexpr std::chrono::milliseconds kHeldBackMax{5};
constexpr uint32_t kBlockBytes = 4096;

timespec time_of(std::chrono::system_clock::time_point time) {
  const auto seconds = std::chrono::floor<std::chrono::seconds>(time);
  return {.tv_sec = seconds.time_since_epoch().count(),
          .tv_nsec = std::chrono::nanoseconds(time - seconds).count()};
}

}  // namespace

struct stat stat_of(const Attributes& attributes) {
  struct stat info = {};
  info.st_ino = attributes.visible_inode;
  info.st_mode = attributes.is_directory ? S_IFDIR | 0555 : S_IFREG | 0444;
  info.st_nlink = attributes.is_directory ? 2 : 1;
  info.st_uid = ::getuid();
  info.st_gid = ::getgid();
  info.st_size = static_cast<off_t>(attributes.size_bytes);
  info.st_blksize = kReadBytesMax;
  info.st_blocks = static_cast<blkcnt_t>((attributes.size_bytes + 511) / 512);
  info.st_atim = info.st_mtim = info.st_ctim = time_of(attributes.modified);
  return info;
}

FuseFiles::FuseFiles(Listing& listing, Inodes& inodes, Content& content, DiskCache* cache,
                     FetchQueue& queue, CounterRegistry& counters, FuseFilesOptions options,
                     Clock& clock)
    : listing_(listing),
      inodes_(inodes),
      content_(content),
      cache_(cache),
      queue_(queue),
      options_(options),
      clock_(clock),
      open_count_(counters.counter(metric::kMountOpens)),
      passthrough_count_(counters.counter(metric::kMountPassthroughOpens)) {}

// The kernel does not release what was open when the connection ended.
FuseFiles::~FuseFiles() {
  for (OpenFile* file : open_files_) {
    content_.close(file->handle);
    delete file;
  }
  for (OpenDirectoryPointer* directory : open_directories_) delete directory;
}

const fuse_lowlevel_ops& FuseFiles::operations() {
  static const fuse_lowlevel_ops operations = {
      .init = op_init,
      .lookup = op_lookup,
      .forget = op_forget,
      .getattr = op_getattr,
      .open = op_open,
      .read = op_read,
      .release = op_release,
      .opendir = op_opendir,
      .readdir = op_readdir,
      .releasedir = op_releasedir,
      .statfs = op_statfs,
      .forget_multi = op_forget_multi,
      .readdirplus = op_readdirplus,
  };
  return operations;
}

void FuseFiles::op_init(void*, fuse_conn_info* connection) {
  connection->max_write = kReadBytesMax;  // what a request may have, of reads too
  connection->max_background = kRequestsAtOnce;
  connection->congestion_threshold = kRequestsAtOnce;
  connection->want &= ~static_cast<unsigned>(FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE |
                                             FUSE_CAP_SPLICE_MOVE | FUSE_CAP_AUTO_INVAL_DATA);
}

void FuseFiles::push(FetchQueue::Urgency urgency, std::function<void()> task) {
  queue_.push(urgency, [task = std::move(task)]() -> Result<uint64_t> {
    task();
    return uint64_t{0};
  });
}

// ---- names

std::optional<fuse_entry_param> FuseFiles::entry_of(uint64_t parent, const Listing::Found& found) {
  const auto attributes = inodes_.acquire(parent, *found.entry);
  if (!attributes) return std::nullopt;
  fuse_entry_param entry = {};
  entry.ino = attributes->inode;
  entry.attr = stat_of(*attributes);
  entry.attr_timeout = kAttributeSeconds;
  entry.entry_timeout =
      std::max(0.0, std::chrono::duration<double>(found.expires - clock_.now()).count());
  return entry;
}

void FuseFiles::reply_entry(fuse_req_t request, uint64_t parent, const Listing::Found& found) {
  if (!found.entry) {
    fuse_reply_err(request, ENOENT);
    return;
  }
  const auto entry = entry_of(parent, found);
  if (!entry) {
    fuse_reply_err(request, ESTALE);
    return;
  }
  // When it was not taken the kernel does not hold it.
  if (fuse_reply_entry(request, &*entry) != 0) inodes_.release(entry->ino, 1);
  trim_inodes();
}

void FuseFiles::op_lookup(fuse_req_t request, fuse_ino_t parent, const char* name) {
  FuseFiles& self = of(request);
  const auto directory = self.inodes_.directory_key(parent);
  if (!directory) {
    fuse_reply_err(request, self.inodes_.attributes(parent) ? ENOTDIR : ESTALE);
    return;
  }
  if (const auto found = self.listing_.cached(*directory, name))
    return self.reply_entry(request, parent, *found);
  const PendingPointer pending = FuseServer::of(request).pend(request);
  self.push(FetchQueue::Urgency::kAwaited,
            [&self, pending, parent, directory = *directory, name = std::string(name)] {
              const auto found = self.listing_.find(directory, name);
              const fuse_req_t waiting = pending->take();
              if (waiting == nullptr) return;
              if (found)
                self.reply_entry(waiting, parent, *found);
              else
                fuse_reply_err(waiting, errno_of(found.error().code));
            });
}

// Asks the kernel to forget names that it has not asked for in a long time. It does that more
// slowly than it can ask for names; so who has just been answered is held back a little when there
// are far too many.
void FuseFiles::trim_inodes() {
  const size_t count = inodes_.count();
  if (count <= options_.inode_count_max) return;
  if (!is_trimming_.exchange(true)) push(FetchQueue::Urgency::kAwaited, [this] { trim(); });
  if (count <= 2 * options_.inode_count_max) return;
  std::unique_lock lock(trim_mutex_);
  trimmed_.wait_for(lock, kHeldBackMax);
}

void FuseFiles::trim() {
  const size_t wanted = options_.inode_count_max - options_.inode_count_max / 10;
  size_t before = SIZE_MAX;
  for (size_t count = inodes_.count(); count > wanted && count < before; count = inodes_.count()) {
    before = count;
    for (const Inodes::Name& name : inodes_.oldest(wanted, kTrimAtOnce))
      server_->invalidate(name.parent, name.name);
    trimmed_.notify_all();
  }
  is_trimming_ = false;
}

void FuseFiles::op_forget(fuse_req_t request, fuse_ino_t inode, uint64_t count) {
  of(request).inodes_.release(inode, count);
  fuse_reply_none(request);
}

void FuseFiles::op_forget_multi(fuse_req_t request, size_t count, fuse_forget_data* forgets) {
  for (const fuse_forget_data& forget : std::span(forgets, count))
    of(request).inodes_.release(forget.ino, forget.nlookup);
  fuse_reply_none(request);
}

void FuseFiles::op_getattr(fuse_req_t request, fuse_ino_t inode, fuse_file_info*) {
  const auto attributes = of(request).inodes_.attributes(inode);
  if (!attributes) {
    fuse_reply_err(request, ESTALE);
    return;
  }
  const struct stat info = stat_of(*attributes);
  fuse_reply_attr(request, &info, kAttributeSeconds);
}

void FuseFiles::op_statfs(fuse_req_t request, fuse_ino_t) {
  struct statvfs info = {};
  info.f_bsize = kBlockBytes;
  info.f_frsize = kBlockBytes;
  info.f_namemax = kNameBytesMax;
  info.f_flag = ST_RDONLY;
  fuse_reply_statfs(request, &info);
}

void FuseFiles::on_changed(const ObjectVersion& version) {
  const size_t slash = version.key.rfind('/');
  const size_t name_begin = slash == version.key.npos ? 0 : slash + 1;
  const std::string name = version.key.substr(name_begin);
  listing_.forget(version.key.substr(0, name_begin), name);
  push(FetchQueue::Urgency::kAwaited, [this, version, name] {
    std::unordered_set<uint64_t> parents;
    {
      const std::lock_guard lock(mutex_);
      for (const OpenFile* file : open_files_)
        if (file->version.key == version.key) parents.insert(file->parent);
    }
    for (const uint64_t parent : parents) server_->invalidate(parent, name);
  });
}

}  // namespace yard::mount
