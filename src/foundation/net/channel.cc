#include <fcntl.h>
#include <openssl/err.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

#include "net/channel_internal.h"

namespace yard::net_internal {
namespace {

// One TLS record holds 16 KiB; pieces up to here are joined into one.
constexpr size_t kTlsRecordBytes = 16 << 10;
constexpr size_t kCopyBytes = 256 << 10;
// sendfile() takes no more at once (Linux, MAX_RW_COUNT).
constexpr uint64_t kSendFileBytesMax = 0x7ffff000;

std::string last_ssl_error() {
  std::array<char, 256> text{};
  const unsigned long code = ERR_get_error();
  if (code == 0) return "unknown TLS error";
  ERR_error_string_n(code, text.data(), text.size());
  ERR_clear_error();
  return text.data();
}

// A client that offers HTTP/2 is told that we speak HTTP/1.1.
int select_http_1_1(SSL*, const unsigned char** out, unsigned char* out_bytes,
                    const unsigned char* in, unsigned in_bytes, void*) {
  static constexpr std::array<unsigned char, 9> kOurs = {8, 'h', 't', 't', 'p', '/', '1', '.', '1'};
  unsigned char* chosen = nullptr;
  if (SSL_select_next_proto(&chosen, out_bytes, kOurs.data(), kOurs.size(), in, in_bytes) !=
      OPENSSL_NPN_NEGOTIATED)
    return SSL_TLSEXT_ERR_NOACK;
  *out = chosen;
  return SSL_TLSEXT_ERR_OK;
}

Error peer_is_gone() {
  return {Code::kUnavailable, "the peer closed the connection"};
}

// Takes `bytes` off the front of the pieces; returns those still to be written.
std::span<iovec> without_front(std::span<iovec> pieces, size_t bytes) {
  while (!pieces.empty() && bytes >= pieces.front().iov_len) {
    bytes -= pieces.front().iov_len;
    pieces = pieces.subspan(1);
  }
  if (!pieces.empty()) {
    pieces.front().iov_base = static_cast<char*>(pieces.front().iov_base) + bytes;
    pieces.front().iov_len -= bytes;
  }
  return pieces;
}

std::span<const std::byte> as_bytes(const iovec& piece) {
  return {static_cast<const std::byte*>(piece.iov_base), piece.iov_len};
}

}  // namespace

Result<SslContextPointer> make_server_tls_context(const std::string& certificate_path,
                                                  const std::string& key_path) {
  SslContextPointer context(SSL_CTX_new(TLS_server_method()));
  if (!context) return Error{Code::kInternal, last_ssl_error()};
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  SSL_CTX_set_mode(context.get(), SSL_MODE_ENABLE_PARTIAL_WRITE |
                                      SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                      SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_options(context.get(), SSL_OP_NO_RENEGOTIATION | SSL_OP_IGNORE_UNEXPECTED_EOF);
  SSL_CTX_set_alpn_select_cb(context.get(), select_http_1_1, nullptr);
  if (SSL_CTX_use_certificate_chain_file(context.get(), certificate_path.c_str()) != 1)
    return Error{Code::kInvalidArgument,
                 "TLS certificate '" + certificate_path + "': " + last_ssl_error()};
  if (SSL_CTX_use_PrivateKey_file(context.get(), key_path.c_str(), SSL_FILETYPE_PEM) != 1 ||
      SSL_CTX_check_private_key(context.get()) != 1)
    return Error{Code::kInvalidArgument, "TLS key '" + key_path + "': " + last_ssl_error()};
  return context;
}

SigpipeBlock::SigpipeBlock() {
  sigset_t pipe_set;
  sigset_t before;
  sigemptyset(&pipe_set);
  sigaddset(&pipe_set, SIGPIPE);
  ::pthread_sigmask(SIG_BLOCK, &pipe_set, &before);
  was_blocked_ = sigismember(&before, SIGPIPE) == 1;
}

SigpipeBlock::~SigpipeBlock() {
  if (was_blocked_) return;
  sigset_t pipe_set;
  sigemptyset(&pipe_set);
  sigaddset(&pipe_set, SIGPIPE);
  const timespec no_wait{};
  while (::sigtimedwait(&pipe_set, nullptr, &no_wait) > 0) {
  }
  ::pthread_sigmask(SIG_UNBLOCK, &pipe_set, nullptr);
}

bool ProgressLimit::waited(std::chrono::nanoseconds duration) {
  waited_ += duration;
  if (waited_ < timeout_) return true;
  if (bytes_ < bytes_min_) return false;
  waited_ = std::chrono::nanoseconds(0);
  bytes_ = 0;
  return true;
}

Channel::Channel(UniqueFd fd, SslPointer ssl) : fd_(std::move(fd)), ssl_(std::move(ssl)) {
  ::fcntl(fd_.get(), F_SETFL, ::fcntl(fd_.get(), F_GETFL) | O_NONBLOCK);
  if (!ssl_) return;
  SSL_set_fd(ssl_.get(), fd_.get());
  SSL_set_accept_state(ssl_.get());
  SSL_set_read_ahead(ssl_.get(), 1);
}

Channel::Step Channel::step_of_ssl(int returned) {
  switch (SSL_get_error(ssl_.get(), returned)) {
    case SSL_ERROR_WANT_READ:
      return {State::kWantRead};
    case SSL_ERROR_WANT_WRITE:
      return {State::kWantWrite};
    case SSL_ERROR_ZERO_RETURN:
      return {State::kEnd};
    default:
      ERR_clear_error();
      return {State::kFailed};
  }
}

Channel::Step Channel::try_handshake() {
  if (!ssl_) return {State::kMoved};
  const int returned = SSL_do_handshake(ssl_.get());
  return returned == 1 ? Step{State::kMoved} : step_of_ssl(returned);
}

Channel::Step Channel::try_read(std::span<std::byte> into) {
  if (ssl_) {
    size_t bytes = 0;
    const int returned = SSL_read_ex(ssl_.get(), into.data(), into.size(), &bytes);
    return returned == 1 ? Step{State::kMoved, bytes} : step_of_ssl(returned);
  }
  for (;;) {
    const ssize_t bytes = ::recv(fd_.get(), into.data(), into.size(), 0);
    if (bytes > 0) return {State::kMoved, static_cast<size_t>(bytes)};
    if (bytes == 0) return {State::kEnd};
    if (errno == EAGAIN || errno == EWOULDBLOCK) return {State::kWantRead};
    if (errno != EINTR) return {State::kFailed};
  }
}

Channel::Step Channel::try_write(std::span<const std::byte> bytes) {
  if (ssl_) {
    size_t written = 0;
    const int returned = SSL_write_ex(ssl_.get(), bytes.data(), bytes.size(), &written);
    return returned == 1 ? Step{State::kMoved, written} : step_of_ssl(returned);
  }
  iovec piece{const_cast<std::byte*>(bytes.data()), bytes.size()};
  return try_write_plain({&piece, 1}, false);
}

Channel::Step Channel::try_write_plain(std::span<iovec> pieces, bool more) {
  msghdr message{};
  message.msg_iov = pieces.data();
  message.msg_iovlen = pieces.size();
  for (;;) {
    const ssize_t bytes = ::sendmsg(fd_.get(), &message, MSG_NOSIGNAL | (more ? MSG_MORE : 0));
    if (bytes >= 0) return {State::kMoved, static_cast<size_t>(bytes)};
    if (errno == EAGAIN || errno == EWOULDBLOCK) return {State::kWantWrite};
    if (errno != EINTR) return {State::kFailed};
  }
}

bool Channel::wait_readable(std::chrono::nanoseconds timeout) {
  pollfd item{fd_.get(), POLLIN, 0};
  const auto seconds = std::chrono::floor<std::chrono::seconds>(timeout);
  const timespec time{seconds.count(), (timeout - seconds).count()};
  return ::ppoll(&item, 1, &time, nullptr) > 0;
}

Status Channel::wait(short events, ProgressLimit& limit) {
  const auto start = std::chrono::steady_clock::now();
  pollfd item{fd_.get(), events, 0};
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(limit.time_left()).count();
  const int ready = ::poll(&item, 1, static_cast<int>(std::clamp<int64_t>(left, 0, 1 << 30)));
  if (ready < 0 && errno != EINTR) return errno_error("waiting for the peer", errno);
  // What ended the wait is counted by the next read or write: a peer that moves a byte each time
  // is still measured.
  if (!limit.waited(std::chrono::steady_clock::now() - start))
    return Error{Code::kDeadlineExceeded, "the peer is too slow"};
  return Ok{};
}

Status Channel::wait_for(State state, ProgressLimit& limit) {
  if (state == State::kWantRead) return wait(POLLIN, limit);
  if (state == State::kWantWrite) return wait(POLLOUT, limit);
  return peer_is_gone();
}

Result<size_t> Channel::read(std::span<std::byte> into, ProgressLimit& limit) {
  for (;;) {
    const Step step = try_read(into);
    if (step.state == State::kEnd) return size_t{0};
    if (step.state == State::kMoved) {
      limit.moved(step.bytes);
      return step.bytes;
    }
    YARD_TRY(wait_for(step.state, limit));
  }
}

Status Channel::write(std::span<iovec> pieces, bool more, ProgressLimit& limit) {
  std::vector<std::byte> joined;
  iovec whole{};
  if (ssl_ && pieces.size() > 1) {
    size_t bytes = 0;
    for (const iovec& piece : pieces) bytes += piece.iov_len;
    if (bytes <= kTlsRecordBytes) {
      for (const iovec& piece : pieces)
        joined.insert(joined.end(), as_bytes(piece).begin(), as_bytes(piece).end());
      whole = {joined.data(), joined.size()};
      pieces = {&whole, 1};
    }
  }
  pieces = without_front(pieces, 0);  // past empty pieces
  while (!pieces.empty()) {
    const Step step = ssl_ ? try_write(as_bytes(pieces.front())) : try_write_plain(pieces, more);
    if (step.state != State::kMoved) {
      YARD_TRY(wait_for(step.state, limit));
      continue;
    }
    limit.moved(step.bytes);
    pieces = without_front(pieces, step.bytes);
  }
  return Ok{};
}

Status Channel::write_file(int file, uint64_t offset, uint64_t length, ProgressLimit& limit) {
  if (ssl_) return write_file_by_copy(file, offset, length, limit);
  off_t position = static_cast<off_t>(offset);
  while (length > 0) {
    const ssize_t bytes =
        ::sendfile(fd_.get(), file, &position, std::min(length, kSendFileBytesMax));
    if (bytes > 0) {
      limit.moved(static_cast<size_t>(bytes));
      length -= static_cast<uint64_t>(bytes);
    } else if (bytes == 0) {
      return Error{Code::kCorrupt, "the file ended early"};
    } else if (errno == EAGAIN) {
      YARD_TRY(wait(POLLOUT, limit));
    } else if (errno == EINVAL || errno == ENOSYS) {
      // A file system without splice support.
      return write_file_by_copy(file, static_cast<uint64_t>(position), length, limit);
    } else if (errno == EIO || errno == EOVERFLOW || errno == EBADF) {
      return errno_error("reading the file to send", errno);
    } else if (errno != EINTR) {
      return peer_is_gone();
    }
  }
  return Ok{};
}

Status Channel::write_file_by_copy(int file, uint64_t offset, uint64_t length,
                                   ProgressLimit& limit) {
  std::vector<std::byte> buffer(std::min<uint64_t>(length, kCopyBytes));
  while (length > 0) {
    const ssize_t bytes = ::pread(file, buffer.data(), std::min<uint64_t>(length, buffer.size()),
                                  static_cast<off_t>(offset));
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0) return errno_error("reading the file to send", errno);
    if (bytes == 0) return Error{Code::kCorrupt, "the file ended early"};
    iovec piece{buffer.data(), static_cast<size_t>(bytes)};
    YARD_TRY(write({&piece, 1}, false, limit));
    offset += static_cast<uint64_t>(bytes);
    length -= static_cast<uint64_t>(bytes);
  }
  return Ok{};
}

void Channel::end_writing() {
  if (ssl_ && SSL_is_init_finished(ssl_.get())) {
    SSL_shutdown(ssl_.get());  // tells the peer once; its answer is not waited for
    ERR_clear_error();
  }
  ::shutdown(fd_.get(), SHUT_WR);
}

void Channel::break_off() {
  ::shutdown(fd_.get(), SHUT_RDWR);
}

}  // namespace yard::net_internal
