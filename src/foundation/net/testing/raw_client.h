// RawClient: a TCP connection on which a test says exactly the bytes it wants.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <cerrno>
#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/file.h"
#include "base/result.h"

namespace yard {

// Not thread-safe. A read that sees nothing for 30 s fails, so that a test ends.
class RawClient {
 public:
  explicit RawClient(uint16_t port, int receive_buffer_bytes = 0)
      : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    if (receive_buffer_bytes > 0)
      ::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVBUF, &receive_buffer_bytes,
                   sizeof receive_buffer_bytes);
    const int on = 1;
    ::setsockopt(fd_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    const timeval patience{.tv_sec = 30, .tv_usec = 0};
    ::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    YARD_CHECK(::connect(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  }

  // False when the server has closed.
  bool say(std::string_view text) {
    while (!text.empty()) {
      const ssize_t bytes = ::send(fd_.get(), text.data(), text.size(), MSG_NOSIGNAL);
      if (bytes < 0) return false;
      text.remove_prefix(static_cast<size_t>(bytes));
    }
    return true;
  }

  // The next response's head and its body of Content-Length bytes; "" when none came.
  std::string response(bool has_body = true) {
    const std::string head = until("\r\n\r\n");
    if (!has_body || head.empty()) return head;
    return head + exactly(content_length(head));
  }
  // Up to and with `mark`; "" when the connection ended before it.
  std::string until(std::string_view mark) {
    size_t found = 0;
    while ((found = input_.find(mark)) == std::string::npos)
      if (!fill()) return "";
    return take(found + mark.size());
  }
  std::string exactly(size_t bytes) {
    while (input_.size() < bytes && fill()) {
    }
    return take(bytes);
  }
  std::string rest() {
    while (fill()) {
    }
    return take(input_.size());
  }
  // True when the server ended the connection in order; what came before is dropped.
  bool ended() {
    rest();
    return last_errno_ == 0;
  }
  bool was_reset() {
    rest();
    return last_errno_ == ECONNRESET;
  }
  void end_writing() { ::shutdown(fd_.get(), SHUT_WR); }
  void close() { fd_.reset(); }

 private:
  static size_t content_length(std::string_view head) {
    constexpr std::string_view kName = "Content-Length: ";
    const size_t at = head.find(kName);
    size_t length = 0;
    if (at != std::string_view::npos)
      std::from_chars(head.data() + at + kName.size(), head.data() + head.size(), length);
    return length;
  }
  std::string take(size_t bytes) {
    std::string taken = input_.substr(0, bytes);
    input_.erase(0, bytes);
    return taken;
  }
  bool fill() {
    char buffer[16 << 10];
    const ssize_t bytes = ::recv(fd_.get(), buffer, sizeof buffer, 0);
    last_errno_ = bytes < 0 ? errno : 0;
    if (bytes <= 0) return false;
    input_.append(buffer, static_cast<size_t>(bytes));
    return true;
  }

  UniqueFd fd_;
  std::string input_;
  int last_errno_ = 0;
};

}  // namespace yard
