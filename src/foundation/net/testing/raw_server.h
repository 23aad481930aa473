// RawServer: answers every connection with the same bytes, HTTP or not, and ends it.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <string>
#include <string_view>
#include <thread>

#include "base/file.h"
#include "base/result.h"

namespace yard {

// Reads a request's head, sends `answer`, ends the connection as told. Its thread ends with it.
class RawServer {
 public:
  enum class End { kClose, kReset };

  RawServer(std::string_view answer, End end)
      : answer_(answer), end_(end), socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    YARD_CHECK(::bind(socket_.get(), reinterpret_cast<sockaddr*>(&address), size) == 0);
    YARD_CHECK(::listen(socket_.get(), 16) == 0);
    ::getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&address), &size);
    url_ = "http://127.0.0.1:" + std::to_string(ntohs(address.sin_port)) + "/";
    thread_ = std::thread([this] { run(); });
  }
  ~RawServer() {
    ::shutdown(socket_.get(), SHUT_RDWR);
    thread_.join();
  }

  const std::string& url() const { return url_; }

 private:
  void run() {
    for (;;) {
      const UniqueFd client(::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!client.valid()) return;
      std::string request;
      char buffer[4096];
      while (request.find("\r\n\r\n") == std::string::npos) {
        const ssize_t bytes = ::recv(client.get(), buffer, sizeof buffer, 0);
        if (bytes <= 0) break;
        request.append(buffer, static_cast<size_t>(bytes));
      }
      (void)::send(client.get(), answer_.data(), answer_.size(), MSG_NOSIGNAL);
      const struct linger at_once { .l_onoff = end_ == End::kReset, .l_linger = 0 };
      ::setsockopt(client.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    }
  }

  const std::string answer_;
  const End end_;
  UniqueFd socket_;
  std::string url_;
  std::thread thread_;
};

}  // namespace yard
