#include "collective/point_to_point_wire_internal.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace yard::collective {

Status WireWriter::write(int fd, std::vector<std::shared_ptr<Message>>& done) {
  while (!items_.empty()) {
    WireItem& item = items_.front();
    const size_t header_left =
        written_bytes_ < sizeof(WireHeader) ? sizeof(WireHeader) - written_bytes_ : 0;
    const size_t payload_at = written_bytes_ - (sizeof(WireHeader) - header_left);
    std::array<iovec, 2> pieces{
        iovec{.iov_base =
                  reinterpret_cast<std::byte*>(&item.header) + (sizeof(WireHeader) - header_left),
              .iov_len = header_left},
        iovec{.iov_base = const_cast<std::byte*>(item.payload.data()) + payload_at,
              .iov_len = item.payload.size() - payload_at}};
    msghdr message{};
    message.msg_iov = pieces.data();
    message.msg_iovlen = pieces.size();
    const ssize_t sent = ::sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
      if (errno == EAGAIN || errno == EWOULDBLOCK) return Ok{};
      if (errno == EINTR) continue;
      return Error{Code::kUnavailable, std::strerror(errno)};
    }
    written_bytes_ += static_cast<size_t>(sent);
    if (written_bytes_ < sizeof(WireHeader) + item.payload.size()) continue;
    if (item.sent) done.push_back(std::move(item.sent));
    items_.pop_front();
    written_bytes_ = 0;
  }
  return Ok{};
}

std::vector<std::shared_ptr<Message>> WireWriter::drop() {
  std::vector<std::shared_ptr<Message>> dropped;
  for (WireItem& item : items_)
    if (item.sent) dropped.push_back(std::move(item.sent));
  items_.clear();
  written_bytes_ = 0;
  return dropped;
}

}  // namespace yard::collective
