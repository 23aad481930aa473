// Whatever a client sends, the server answers or closes: it neither hangs nor gives the handler
// more body than was announced.
#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <thread>

#include "base/result.h"
#include "net/http_server.h"

namespace {

using namespace yard;

void handle(Request& request, ResponseWriter& response) {
  YARD_CHECK(request.path().size() <= request.target().size());
  uint64_t body_bytes = 0;
  std::array<std::byte, 100> piece;
  while (true) {
    const auto got = request.read(piece);
    if (!got) return;
    if (*got == 0) break;
    body_bytes += *got;
  }
  if (const auto length = request.content_length()) YARD_CHECK(body_bytes == *length);
  (void)response.send(200, request.target());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  int ends[2];
  YARD_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
  UniqueFd server(ends[0]), client(ends[1]);
  std::thread reader([fd = client.get()] {
    std::array<char, 4096> answer;
    while (::recv(fd, answer.data(), answer.size(), 0) > 0) {
    }
  });
  // An input is at most 4 KiB: it fits into the socket's buffer and cannot block.
  YARD_CHECK(::send(client.get(), data, size, MSG_NOSIGNAL) == static_cast<ssize_t>(size));
  ::shutdown(client.get(), SHUT_WR);
  serve_connection(std::move(server), {.header_bytes_max = 2048, .target_bytes_max = 512}, handle);
  reader.join();
  return 0;
}
