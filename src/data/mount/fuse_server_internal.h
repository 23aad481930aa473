// FuseServer: one mount's conversation with the kernel, behind libfuse's low-level API.
//
// libfuse parses requests and packs replies; the device is read and written here
// (fuse_session_custom_io), because libfuse before 3.17 knows no passthrough: what the kernel
// offers and what it is told of it is read and added in its first exchange.
#pragma once

#define FUSE_USE_VERSION 312
#include <fuse3/fuse_lowlevel.h>
#include <sys/uio.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "base/stop_token.h"

namespace yard::mount {

// The one place where codes become errno. Of bytes: what a read() returns.
int errno_of(Code code);
int errno_of_bytes(Code code);

class FuseServer;

// A request that is answered later, by any thread, once: by its result or by an interrupt (EINTR).
class Pending {
 public:
  Pending(FuseServer& server, fuse_req_t request) : server_(server), request_(request) {}
  // The request to answer, for the first who asks; null for all others.
  fuse_req_t take();

 private:
  FuseServer& server_;
  std::atomic<fuse_req_t> request_;
};
using PendingPointer = std::shared_ptr<Pending>;

class FuseServer {
 public:
  // `operations` get `user` by user_of(). Does not serve yet.
  static Result<std::unique_ptr<FuseServer>> open(UniqueFd device,
                                                  const fuse_lowlevel_ops& operations, void* user,
                                                  bool wants_passthrough);
  // The destructor breaks the connection: all requests must have been answered.
  ~FuseServer();

  void serve(int thread_count);
  void stop();                                        // joins the threads
  StopToken ended() const { return ended_.token(); }  // the kernel has let go of the mount

  static FuseServer& of(fuse_req_t request);
  static void* user_of(fuse_req_t request) { return of(request).user_; }
  PendingPointer pend(fuse_req_t request);

  // Drops a name from the kernel's cache. Not from within an operation.
  void invalidate(uint64_t parent, const std::string& name);

  bool has_passthrough() const { return has_passthrough_; }
  // A number for the kernel to read that file by itself; none when it refuses.
  std::optional<int> open_backing(int fd);
  void close_backing(int backing_id);
  // False: the opener does not wait any more.
  static bool reply_passthrough(fuse_req_t request, uint64_t handle, int backing_id);

 private:
  friend class Pending;
  FuseServer(UniqueFd device, void* user, bool wants_passthrough);
  static ssize_t read_device(int fd, void* buffer, size_t size_bytes, void* server);
  static ssize_t write_device(int fd, iovec* pieces, int count, void* server);
  static void interrupt(fuse_req_t request, void* server);
  void note_request(std::span<const std::byte> request);
  ssize_t write_init(iovec* pieces, int count);
  void run();

  UniqueFd device_;
  void* const user_;
  const bool wants_passthrough_;
  fuse_session* session_ = nullptr;
  std::atomic<uint64_t> init_request_ = 0;
  std::atomic<bool> has_passthrough_ = false;
  StopSource stop_;
  StopSource ended_;
  std::mutex invalidate_mutex_;
  bool is_closing_ = false;
  std::mutex pending_mutex_;
  std::unordered_map<fuse_req_t, std::weak_ptr<Pending>> pending_;
  std::vector<std::thread> threads_;
};

}  // namespace yard::mount
