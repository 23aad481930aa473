#include <fcntl.h>
#include <linux/fuse.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/log.h"
#include "mount/fuse_server_internal.h"

namespace yard::mount {
namespace {

// Of Linux 6.9, in no header of older distributions (include/uapi/linux/fuse.h).
constexpr uint32_t kInitExtended = 1U << 30;
constexpr uint32_t kPassthroughFlag2 = 1U << (37 - 32);
constexpr uint32_t kOpenPassthrough = 1U << 7;
struct BackingMap {
  int32_t fd = -1;
  uint32_t flags = 0;
  uint64_t padding = 0;
};
constexpr unsigned long kBackingOpen = _IOW(229, 1, BackingMap);
constexpr unsigned long kBackingClose = _IOW(229, 2, uint32_t);

// Where the fields lie in fuse_init_in and fuse_init_out since protocol 7.36.
constexpr size_t kInFlags = 12, kInFlags2 = 16;
constexpr size_t kOutFlags = 12, kOutFlags2 = 32, kOutStackDepth = 36, kOutBytes = 64;

uint32_t word_at(const std::byte* bytes, size_t offset) {
  uint32_t word = 0;
  std::memcpy(&word, bytes + offset, sizeof word);
  return word;
}

void log_of_libfuse(fuse_log_level level, const char* format, va_list arguments) {
  char text[512];
  std::vsnprintf(text, sizeof text, format, arguments);
  std::string_view line(text);
  if (line.ends_with('\n')) line.remove_suffix(1);
  write_log(level <= FUSE_LOG_ERR ? LogLevel::kWarning : LogLevel::kDebug, line);
}

}  // namespace

int errno_of(Code code) {
  switch (code) {
    case Code::kNotFound:
      return ENOENT;
    case Code::kInvalidArgument:
      return EACCES;  // what a store refuses: a signature, a permission
    case Code::kCorrupt:
    case Code::kInternal:
      return EIO;
    case Code::kUnavailable:
    case Code::kDeadlineExceeded:
      return ETIMEDOUT;
    case Code::kCancelled:
      return ENOTCONN;
    case Code::kExhausted:
      return ENOMEM;
  }
  YARD_UNREACHABLE();
}

int errno_of_bytes(Code code) {
  return code == Code::kNotFound ? EIO : errno_of(code);
}

// ---- requests that wait

fuse_req_t Pending::take() {
  const fuse_req_t request = request_.exchange(nullptr);
  if (request != nullptr) {
    const std::lock_guard lock(server_.pending_mutex_);
    server_.pending_.erase(request);
  }
  return request;
}

PendingPointer FuseServer::pend(fuse_req_t request) {
  auto pending = std::make_shared<Pending>(*this, request);
  {
    const std::lock_guard lock(pending_mutex_);
    pending_.insert_or_assign(request, pending);
  }
  fuse_req_interrupt_func(request, interrupt, this);
  return pending;
}

void FuseServer::interrupt(fuse_req_t request, void* server) {
  if (server == nullptr) return;  // answered meanwhile
  auto& self = *static_cast<FuseServer*>(server);
  PendingPointer pending;
  {
    const std::lock_guard lock(self.pending_mutex_);
    const auto found = self.pending_.find(request);
    if (found != self.pending_.end()) pending = found->second.lock();
  }
  if (pending && pending->take() != nullptr) fuse_reply_err(request, EINTR);
}

// ---- the device

FuseServer::FuseServer(UniqueFd device, void* user, bool wants_passthrough)
    : device_(std::move(device)), user_(user), wants_passthrough_(wants_passthrough) {}

Result<std::unique_ptr<FuseServer>> FuseServer::open(UniqueFd device,
                                                     const fuse_lowlevel_ops& operations,
                                                     void* user, bool wants_passthrough) {
  fuse_set_log_func(log_of_libfuse);
  std::unique_ptr<FuseServer> server(new FuseServer(std::move(device), user, wants_passthrough));
  const int fd = server->device_.get();
  if (::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK) < 0)
    return errno_error("/dev/fuse", errno);
  char name[] = "yard";
  char* arguments[] = {name, nullptr};
  fuse_args args = FUSE_ARGS_INIT(1, arguments);
  server->session_ = fuse_session_new(&args, &operations, sizeof operations, server.get());
  fuse_opt_free_args(&args);
  if (server->session_ == nullptr) return Error{Code::kInternal, "libfuse: no session"};
  const fuse_custom_io io{.writev = write_device, .read = read_device};
  const int failure = fuse_session_custom_io(server->session_, &io, fd);
  if (failure != 0) return errno_error("libfuse: custom io", -failure);
  return server;
}

FuseServer::~FuseServer() {
  stop();
  if (session_ == nullptr) return;
  const bool closes_device = fuse_session_fd(session_) == device_.get();
  fuse_session_destroy(session_);
  if (closes_device) static_cast<void>(device_.release());
}

FuseServer& FuseServer::of(fuse_req_t request) {
  return *static_cast<FuseServer*>(fuse_req_userdata(request));
}

// Waits for a request or for stop().
ssize_t FuseServer::read_device(int fd, void* buffer, size_t size_bytes, void* server) {
  auto& self = *static_cast<FuseServer*>(server);
  const int stop_fd = self.stop_.token().fd();
  for (;;) {
    const ssize_t got = ::read(fd, buffer, size_bytes);
    if (got > 0)
      self.note_request({static_cast<const std::byte*>(buffer), static_cast<size_t>(got)});
    if (got >= 0 || errno != EAGAIN) return got;
    std::array<pollfd, 2> items{{{fd, POLLIN, 0}, {stop_fd, POLLIN, 0}}};
    if (::poll(items.data(), items.size(), -1) < 0 && errno != EINTR) return -1;
    if (items[1].revents != 0) {
      errno = EINTR;
      return -1;
    }
  }
}

void FuseServer::note_request(std::span<const std::byte> request) {
  if (init_request_ != 0 || request.size() < sizeof(fuse_in_header) + kInFlags2 + 4) return;
  fuse_in_header head;
  std::memcpy(&head, request.data(), sizeof head);
  if (head.opcode != FUSE_INIT) return;
  init_request_ = head.unique;
  const std::byte* const body = request.data() + sizeof head;
  has_passthrough_ = wants_passthrough_ && (word_at(body, kInFlags) & kInitExtended) != 0 &&
                     (word_at(body, kInFlags2) & kPassthroughFlag2) != 0;
}

ssize_t FuseServer::write_device(int fd, iovec* pieces, int count, void* server) {
  auto& self = *static_cast<FuseServer*>(server);
  fuse_out_header head;
  if (self.has_passthrough_ && count == 2 && pieces[0].iov_len == sizeof head &&
      pieces[1].iov_len >= kOutBytes) {
    std::memcpy(&head, pieces[0].iov_base, sizeof head);
    if (head.unique == self.init_request_ && head.error == 0) return self.write_init(pieces, count);
  }
  return ::writev(fd, pieces, count);
}

// libfuse's answer to the first request, with passthrough added.
ssize_t FuseServer::write_init(iovec* pieces, int count) {
  std::vector<std::byte> body(pieces[1].iov_len);
  std::memcpy(body.data(), pieces[1].iov_base, body.size());
  const uint32_t flags = word_at(body.data(), kOutFlags) | kInitExtended;
  const uint32_t flags2 = word_at(body.data(), kOutFlags2) | kPassthroughFlag2;
  constexpr uint32_t kStackDepth = 1;
  std::memcpy(body.data() + kOutFlags, &flags, sizeof flags);
  std::memcpy(body.data() + kOutFlags2, &flags2, sizeof flags2);
  std::memcpy(body.data() + kOutStackDepth, &kStackDepth, sizeof kStackDepth);
  iovec changed[2] = {pieces[0], {body.data(), body.size()}};
  init_request_ = UINT64_MAX;  // once
  return ::writev(device_.get(), changed, count);
}

void FuseServer::serve(int thread_count) {
  for (int i = 0; i < thread_count; ++i) threads_.emplace_back([this] { run(); });
}

void FuseServer::run() {
  fuse_buf buffer{};
  while (!fuse_session_exited(session_) && !stop_.token().stopped()) {
    const int got = fuse_session_receive_buf(session_, &buffer);
    if (got == -EINTR || got == -EAGAIN) continue;
    if (got <= 0) break;
    fuse_session_process_buf(session_, &buffer);
  }
  std::free(buffer.mem);
  if (fuse_session_exited(session_)) ended_.request();
}

// The kernel may hold an invalidation up until a request is answered, which needs the threads.
void FuseServer::stop() {
  {
    const std::lock_guard lock(invalidate_mutex_);
    is_closing_ = true;
  }
  stop_.request();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void FuseServer::invalidate(uint64_t parent, const std::string& name) {
  const std::lock_guard lock(invalidate_mutex_);
  if (!is_closing_) fuse_lowlevel_notify_inval_entry(session_, parent, name.c_str(), name.size());
}

// ---- passthrough

std::optional<int> FuseServer::open_backing(int fd) {
  const BackingMap map{.fd = fd};
  const int backing_id = ::ioctl(device_.get(), kBackingOpen, &map);
  if (backing_id > 0) return backing_id;
  if (has_passthrough_.exchange(false))
    log_info("the kernel refuses passthrough ({}); cached files are read through this process",
             std::strerror(errno));
  return std::nullopt;
}

void FuseServer::close_backing(int backing_id) {
  const auto id = static_cast<uint32_t>(backing_id);
  static_cast<void>(::ioctl(device_.get(), kBackingClose, &id));
}

// The last field is `backing_id` where libfuse's headers have padding.
bool FuseServer::reply_passthrough(fuse_req_t request, uint64_t handle, int backing_id) {
  fuse_open_out out{};
  static_assert(sizeof out == 16);
  out.fh = handle;
  out.open_flags = kOpenPassthrough;
  std::memcpy(reinterpret_cast<std::byte*>(&out) + 12, &backing_id, sizeof backing_id);
  return fuse_reply_buf(request, reinterpret_cast<const char*>(&out), sizeof out) == 0;
}

}  // namespace yard::mount
