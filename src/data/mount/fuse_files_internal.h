// FuseFiles: the operations of the kernel on one mount. With fuse_server the only place that knows
// libfuse.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "mount/content.h"
#include "mount/disk_cache.h"
#include "mount/fetch_queue.h"
#include "mount/fuse_server_internal.h"
#include "mount/inodes.h"
#include "mount/listing.h"
#include "mount/walk.h"

namespace yard::mount {

struct FuseFilesOptions {
  size_t inode_count_max = 250'000;
  uint64_t walk_bytes_max = uint64_t{32} << 20;  // fetched ahead of one walk
};

// Thread-safe. All given outlive it but the queue, which must have ended. `cache` may be null.
class FuseFiles {
 public:
  FuseFiles(Listing& listing, Inodes& inodes, Content& content, DiskCache* cache, FetchQueue& queue,
            CounterRegistry& counters, FuseFilesOptions options, Clock& clock);
  ~FuseFiles();

  static const fuse_lowlevel_ops& operations();
  void set_server(FuseServer* server) { server_ = server; }  // before it serves

  // The version is gone: neither we nor the kernel believe in its name any more.
  void on_changed(const ObjectVersion& version);

 private:
  struct OpenFile;
  struct OpenDirectory;
  struct Backed;
  using OpenDirectoryPointer = std::shared_ptr<OpenDirectory>;

  static FuseFiles& of(fuse_req_t request) {
    return *static_cast<FuseFiles*>(FuseServer::user_of(request));
  }
  static void op_init(void* server, fuse_conn_info* connection);
  static void op_lookup(fuse_req_t request, fuse_ino_t parent, const char* name);
  static void op_forget(fuse_req_t request, fuse_ino_t inode, uint64_t count);
  static void op_forget_multi(fuse_req_t request, size_t count, fuse_forget_data* forgets);
  static void op_getattr(fuse_req_t request, fuse_ino_t inode, fuse_file_info* info);
  static void op_open(fuse_req_t request, fuse_ino_t inode, fuse_file_info* info);
  static void op_read(fuse_req_t request, fuse_ino_t inode, size_t size, off_t offset,
                      fuse_file_info* info);
  static void op_release(fuse_req_t request, fuse_ino_t inode, fuse_file_info* info);
  static void op_opendir(fuse_req_t request, fuse_ino_t inode, fuse_file_info* info);
  static void op_readdir(fuse_req_t request, fuse_ino_t inode, size_t size, off_t offset,
                         fuse_file_info* info);
  static void op_readdirplus(fuse_req_t request, fuse_ino_t inode, size_t size, off_t offset,
                             fuse_file_info* info);
  static void op_releasedir(fuse_req_t request, fuse_ino_t inode, fuse_file_info* info);
  static void op_statfs(fuse_req_t request, fuse_ino_t inode);

  void push(FetchQueue::Urgency urgency, std::function<void()> task);
  std::optional<fuse_entry_param> entry_of(uint64_t parent, const Listing::Found& found);
  void reply_entry(fuse_req_t request, uint64_t parent, const Listing::Found& found);
  void trim_inodes();
  void trim();

  void open_file(fuse_req_t request, uint64_t inode, const Inodes::File& file, fuse_file_info info);
  bool open_backed(fuse_req_t request, uint64_t inode, const ObjectVersion& version,
                   std::unique_ptr<OpenFile>& file);
  void let_go(OpenFile& file);
  void let_go(OpenDirectoryPointer* directory);
  void note_walk(const Inodes::File& file);
  void fetch_walk(const Inodes::File& file, Walk& walk, const Listing::Position& position,
                  const WalkPlan& plan);

  void read_directory(fuse_req_t request, const OpenDirectoryPointer& opened, size_t size,
                      uint64_t offset, bool plus);
  Status seek_directory(OpenDirectory& directory, uint64_t offset);
  Status turn_page(OpenDirectory& directory);
  bool is_at_hand(OpenDirectory& directory, uint64_t offset);
  void prefetch_page(const std::string& directory, const Listing::PagePointer& before);

  Listing& listing_;
  Inodes& inodes_;
  Content& content_;
  DiskCache* const cache_;
  FetchQueue& queue_;
  const FuseFilesOptions options_;
  Clock& clock_;
  Counter& open_count_;
  Counter& passthrough_count_;
  FuseServer* server_ = nullptr;
  std::atomic<bool> is_trimming_ = false;
  std::mutex trim_mutex_;
  std::condition_variable trimmed_;

  std::mutex mutex_;
  std::unordered_set<OpenFile*> open_files_;
  std::unordered_set<OpenDirectoryPointer*> open_directories_;
  std::map<std::string, Walk> walks_;            // by directory
  std::unordered_map<uint64_t, Backed> backed_;  // by inode
};

}  // namespace yard::mount
