// http_load PORT CONNECTIONS SECONDS < requests: how fast a server answers. Each line of the input
// is a target, or a target and, behind a tab, header lines joined by "|"; they are asked for in
// turn over kept connections, and the bodies thrown away. Prints "BYTES_PER_SECOND
// REQUESTS_PER_SECOND". Any answer but 200 ends it with an error.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "base/file.h"
#include "base/result.h"

namespace {

using Clock = std::chrono::steady_clock;

std::string request_of(const std::string& line, int port) {
  const size_t tab = line.find('\t');
  std::string request = "GET " + line.substr(0, tab) +
                        " HTTP/1.1\r\nHost: 127.0.0.1:" + std::to_string(port) + "\r\n";
  if (tab != line.npos) {
    std::string headers = line.substr(tab + 1);
    for (size_t at; (at = headers.find('|')) != headers.npos;) headers.replace(at, 1, "\r\n");
    request += headers + "\r\n";
  }
  return request + "\r\n";
}

yard::UniqueFd connect_to(int port) {
  yard::UniqueFd fd(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  YARD_CHECK(::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  const int one = 1;
  ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  return fd;
}

// The bytes of one answer's body, read off the connection.
uint64_t read_answer(int fd, std::vector<char>& buffer) {
  size_t have = 0;
  for (;;) {
    const ssize_t got = ::recv(fd, buffer.data() + have, buffer.size() - have, 0);
    YARD_CHECK(got > 0);
    have += static_cast<size_t>(got);
    const std::string_view text(buffer.data(), have);
    const size_t end = text.find("\r\n\r\n");
    if (end == text.npos) continue;
    if (!text.starts_with("HTTP/1.1 200")) {
      std::fprintf(stderr, "%.*s\n", static_cast<int>(std::min<size_t>(have, 2000)), text.data());
      std::exit(1);
    }
    std::string head(text.substr(0, end));
    std::ranges::transform(head, head.begin(), [](unsigned char c) { return std::tolower(c); });
    const size_t field = head.find("content-length: ");
    YARD_CHECK(field != head.npos);
    const uint64_t length = std::strtoull(head.c_str() + field + 16, nullptr, 10);
    uint64_t left = length - (have - end - 4);
    while (left > 0) {
      const ssize_t more = ::recv(fd, buffer.data(), std::min<uint64_t>(left, buffer.size()), 0);
      YARD_CHECK(more > 0);
      left -= static_cast<uint64_t>(more);
    }
    return length;
  }
}

}  // namespace

int main(int argc, char** argv) {
  YARD_CHECK(argc == 4);
  const int port = std::atoi(argv[1]);
  const int connection_count = std::atoi(argv[2]);
  const std::chrono::duration<double> wanted(std::atof(argv[3]));
  std::vector<std::string> requests;
  for (std::string line; std::getline(std::cin, line);) requests.push_back(request_of(line, port));
  YARD_CHECK(!requests.empty());

  std::atomic<uint64_t> bytes = 0, count = 0, next = 0;
  const auto start = Clock::now();
  std::vector<std::thread> threads;
  for (int i = 0; i < connection_count; ++i)
    threads.emplace_back([&] {
      const yard::UniqueFd fd = connect_to(port);
      std::vector<char> buffer(512 << 10);
      while (Clock::now() - start < wanted) {
        const std::string& request = requests[next++ % requests.size()];
        YARD_CHECK(::send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL) ==
                   static_cast<ssize_t>(request.size()));
        bytes += read_answer(fd.get(), buffer);
        ++count;
      }
    });
  for (auto& thread : threads) thread.join();
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  std::printf("%.0f %.1f\n", static_cast<double>(bytes) / seconds,
              static_cast<double>(count) / seconds);
}
