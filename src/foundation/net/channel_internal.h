// Channel: one connected stream socket, plain or with TLS, and waits on it that have an end.
#pragma once

#include <openssl/ssl.h>
#include <sys/uio.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/file.h"
#include "base/result.h"

namespace yard::net_internal {

struct SslDeleter {
  void operator()(SSL* ssl) const { SSL_free(ssl); }
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
};
using SslPointer = std::unique_ptr<SSL, SslDeleter>;
using SslContextPointer = std::unique_ptr<SSL_CTX, SslDeleter>;

// kInvalidArgument when the PEM files cannot be read or do not fit each other.
Result<SslContextPointer> make_server_tls_context(const std::string& certificate_path,
                                                  const std::string& key_path);

// sendfile() and OpenSSL raise SIGPIPE when the peer is gone, and no flag of theirs prevents it. A
// thread that writes to sockets holds one of these; the signal's disposition stays the program's.
class SigpipeBlock {
 public:
  SigpipeBlock();
  ~SigpipeBlock();
  SigpipeBlock(const SigpipeBlock&) = delete;
  SigpipeBlock& operator=(const SigpipeBlock&) = delete;

 private:
  bool was_blocked_ = false;
};

// Says when a peer is too slow: it must move `bytes_min` in each `timeout` spent waiting for it.
class ProgressLimit {
 public:
  ProgressLimit(std::chrono::milliseconds timeout, size_t bytes_min)
      : timeout_(timeout), bytes_min_(bytes_min) {}

  void moved(size_t bytes) { bytes_ += bytes; }
  std::chrono::nanoseconds time_left() const { return timeout_ - waited_; }
  // Counts a wait; false when the peer was too slow.
  bool waited(std::chrono::nanoseconds duration);

 private:
  const std::chrono::nanoseconds timeout_;
  const size_t bytes_min_;
  std::chrono::nanoseconds waited_{0};
  size_t bytes_ = 0;
};

// Owns the socket, which it makes non-blocking. Used by one thread at a time, but for break_off().
// Errors: kUnavailable, the peer is gone; kDeadlineExceeded, it was too slow.
class Channel {
 public:
  enum class State { kMoved, kEnd, kWantRead, kWantWrite, kFailed };
  struct Step {
    State state;
    size_t bytes = 0;
  };

  Channel(UniqueFd fd, SslPointer ssl);

  int fd() const { return fd_.get(); }
  bool is_tls() const { return ssl_ != nullptr; }

  // Do not wait.
  Step try_read(std::span<std::byte> into);
  Step try_write(std::span<const std::byte> bytes);
  Step try_handshake();

  // Blocks until something came; 0 at the end.
  Result<size_t> read(std::span<std::byte> into, ProgressLimit& limit);
  // All of it, in order. `more`: further bytes follow at once, so a packet may wait for them.
  Status write(std::span<iovec> pieces, bool more, ProgressLimit& limit);
  // kCorrupt when the file ends early.
  Status write_file(int file, uint64_t offset, uint64_t length, ProgressLimit& limit);
  // True when the socket became readable within `timeout`.
  bool wait_readable(std::chrono::nanoseconds timeout);

  // Nothing more will be sent; what was sent still arrives.
  void end_writing();
  // Ends all reads and writes, those in other threads too. From any thread.
  void break_off();

 private:
  Step try_write_plain(std::span<iovec> pieces, bool more);
  Step step_of_ssl(int returned);
  Status wait(short events, ProgressLimit& limit);
  Status wait_for(State state, ProgressLimit& limit);
  Status write_file_by_copy(int file, uint64_t offset, uint64_t length, ProgressLimit& limit);

  UniqueFd fd_;
  SslPointer ssl_;
};

}  // namespace yard::net_internal
