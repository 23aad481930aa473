#include "collective/door_keeper_internal.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <string>

#include "collective/frame_internal.h"
#include "collective/socket_internal.h"

namespace yard::collective {
namespace {

constexpr size_t kGuestsMax = 64;

}  // namespace

void DoorKeeper::take(KeptDoors doors, std::shared_ptr<TlsTunnels> tunnels) {
  tunnels_ = std::move(tunnels);
  doors_.insert(doors_.end(), doors.begin(), doors.end());
}

void DoorKeeper::append_to(std::vector<pollfd>& polled) const {
  for (const auto& door : doors_)
    polled.push_back({.fd = door->get(), .events = POLLIN, .revents = 0});
  for (const UniqueFd& guest : guests_)
    polled.push_back({.fd = guest.get(), .events = POLLIN, .revents = 0});
}

void DoorKeeper::look() {
  for (const auto& door : doors_) {
    while (true) {
      UniqueFd guest(::accept4(door->get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (!guest.valid()) break;
      const std::string peer = peer_address(guest.get());
      auto ours = secured(tunnels_.get(), std::move(guest), TlsSide::kServer, peer);
      if (guests_.size() >= kGuestsMax) guests_.pop_front();
      if (ours) guests_.push_back(*std::move(ours));
    }
  }
  const std::string answer =
      FrameWriter(FrameType::kRefused)
          .u8(0)
          .error({Code::kInvalidArgument, "the others have gone on without this rank"})
          .bytes();
  // Closing before its greeting is read would take back the answer (RFC 1122, 4.2.2.13).
  std::erase_if(guests_, [&](const UniqueFd& guest) {
    std::array<char, kSmallPayloadBytesMax> greeting;
    const ssize_t got = ::recv(guest.get(), greeting.data(), greeting.size(), MSG_DONTWAIT);
    if (got < 0) return errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR;
    if (got > 0) ::send(guest.get(), answer.data(), answer.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    return true;
  });
}

}  // namespace yard::collective
