#include "collective/links_internal.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <set>

namespace yard::collective {
namespace {

using SteadyClock = std::chrono::steady_clock;

// A CallRecord and the payload after it, partly moved.
struct Moving {
  size_t place = kNoLink;
  int fd = -1;
  std::span<std::byte> head;
  std::span<std::byte> body;
  bool done() const { return head.empty() && body.empty(); }
  void advance(size_t size_bytes) {
    const size_t of_head = std::min(size_bytes, head.size());
    head = head.subspan(of_head);
    body = body.subspan(size_bytes - of_head);
  }
  std::array<iovec, 2> pieces() const {
    return {iovec{.iov_base = head.data(), .iov_len = head.size()},
            iovec{.iov_base = body.data(), .iov_len = body.size()}};
  }
};

std::span<std::byte> head_of(CallRecord& call) {
  return std::as_writable_bytes(std::span(&call, 1));
}

class TcpLinks final : public Links {
 public:
  TcpLinks(LinksPlace place, std::map<size_t, UniqueFd> sockets, Failure& failure,
           std::chrono::milliseconds operation_timeout)
      : Links(std::move(place)),
        sockets_(std::move(sockets)),
        failure_(failure),
        operation_timeout_(operation_timeout) {}

  Status exchange(const CallRecord& call, size_t to, std::span<const std::byte> out, size_t from,
                  std::span<std::byte> in) override {
    CallRecord sent = call;
    CallRecord received;
    peeked_.clear();
    Moving sending, receiving;
    if (to != kNoLink)
      sending = {to, fd_of(to), head_of(sent),
                 std::span(const_cast<std::byte*>(out.data()), out.size())};
    if (from != kNoLink) receiving = {from, fd_of(from), head_of(received), {}};
    bool is_checked = from == kNoLink;
    auto deadline = SteadyClock::now() + operation_timeout_;
    while (!sending.done() || !receiving.done() || !is_checked) {
      if (failure_.failed()) return failure_.status();
      bool moved = false;
      YARD_TRY(send_some(call, sending, &moved));
      YARD_TRY(receive_some(call, receiving, &moved));
      if (!is_checked && receiving.head.empty()) {
        if (!same_call(call, received)) return differ(call, received);
        is_checked = true;
        receiving.body = in;
        continue;
      }
      if (moved)
        deadline = SteadyClock::now() + operation_timeout_;
      else
        YARD_TRY(wait_for(call, sending, receiving, deadline));
    }
    failure_.set_waited_rank(-1);
    return Ok{};
  }

 private:
  int fd_of(size_t partner) const {
    const auto found = sockets_.find(partner);
    YARD_CHECK(found != sockets_.end());
    return found->second.get();
  }

  // Both sides name the two in the same order.
  Status differ(const CallRecord& ours, const CallRecord& theirs) {
    const bool is_ours_first = ours.rank < theirs.rank;
    return failure_.report_after({},
                                 is_ours_first ? mismatch(ours, theirs) : mismatch(theirs, ours));
  }

  Status lost(const CallRecord& call, size_t partner, int error) {
    return failure_.report_after(
        kCauseGrace,
        {Code::kUnavailable,
         fmt::format("{}: {} is gone: {}", describe(call), failure_.name_of(place().ranks[partner]),
                     error == 0 ? "connection closed" : std::strerror(error))});
  }

  Status send_some(const CallRecord& call, Moving& sending, bool* moved) {
    if (sending.done()) return Ok{};
    auto pieces = sending.pieces();
    msghdr message{};
    message.msg_iov = pieces.data();
    message.msg_iovlen = pieces.size();
    const ssize_t sent = ::sendmsg(sending.fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) return would_block(errno) ? Status(Ok{}) : lost(call, sending.place, errno);
    sending.advance(static_cast<size_t>(sent));
    *moved = *moved || sent > 0;
    return Ok{};
  }

  Status receive_some(const CallRecord& call, Moving& receiving, bool* moved) {
    if (receiving.done()) return Ok{};
    auto pieces = receiving.pieces();
    msghdr message{};
    message.msg_iov = pieces.data();
    message.msg_iovlen = pieces.size();
    const ssize_t got = ::recvmsg(receiving.fd, &message, MSG_DONTWAIT);
    if (got == 0) return lost(call, receiving.place, 0);
    if (got < 0) return would_block(errno) ? Status(Ok{}) : lost(call, receiving.place, errno);
    receiving.advance(static_cast<size_t>(got));
    *moved = true;
    return Ok{};
  }

  Status wait_for(const CallRecord& call, const Moving& sending, const Moving& receiving,
                  SteadyClock::time_point deadline) {
    const size_t partner = receiving.done() ? sending.place : receiving.place;
    const int waited = place().ranks[partner];
    failure_.set_waited_rank(waited);
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - SteadyClock::now());
    if (left.count() <= 0) {
      return failure_.report_after(
          {}, {Code::kDeadlineExceeded,
               fmt::format("{}: waited {} ms for {}", describe(call), operation_timeout_.count(),
                           failure_.name_of(failure_.culprit_of(waited)))});
    }
    std::vector<pollfd> polled{
        {.fd = sending.done() ? -1 : sending.fd, .events = POLLOUT, .revents = 0},
        {.fd = receiving.done() ? -1 : receiving.fd, .events = POLLIN, .revents = 0},
        {.fd = failure_.fd(), .events = POLLIN, .revents = 0}};
    std::vector<size_t> others;
    for (const auto& [other, socket] : sockets_) {
      if (other == receiving.place || peeked_.contains(other)) continue;
      polled.push_back({.fd = socket.get(), .events = POLLIN, .revents = 0});
      others.push_back(other);
    }
    ::poll(polled.data(), polled.size(), static_cast<int>(std::min<int64_t>(left.count(), 1000)));
    for (size_t i = 0; i < others.size(); ++i)
      if (polled[3 + i].revents != 0) YARD_TRY(peek(call, others[i]));
    return Ok{};
  }

  // Ranks that call different operations may each wait for one that waits for a third. The one to
  // whom the odd one has sent finds out here.
  Status peek(const CallRecord& call, size_t partner) {
    CallRecord theirs;
    const ssize_t got = ::recv(fd_of(partner), &theirs, sizeof theirs, MSG_PEEK | MSG_DONTWAIT);
    peeked_.insert(partner);
    if (got != static_cast<ssize_t>(sizeof theirs) || theirs.sequence != call.sequence ||
        same_call(call, theirs))
      return Ok{};
    return differ(call, theirs);
  }

  std::set<size_t> peeked_;             // partners whose next message was looked at meanwhile
  std::map<size_t, UniqueFd> sockets_;  // by place
  Failure& failure_;
  const std::chrono::milliseconds operation_timeout_;
};

// Whoever is not one of `awaited` is not let in.
Status accept_partners(const LinksPlace& place, const LinksDoor& door, std::set<size_t> awaited,
                       std::map<size_t, UniqueFd>& sockets, const Patience& patience) {
  while (!awaited.empty()) {
    YARD_ASSIGN(Neighbour neighbour,
                accept_neighbour(door.listener, Door::kTcp, door.session, door.tunnels, patience));
    const auto found = std::find(place.ranks.begin(), place.ranks.end(), neighbour.rank);
    const auto partner = static_cast<size_t>(found - place.ranks.begin());
    if (!awaited.contains(partner)) continue;
    awaited.erase(partner);
    sockets.emplace(partner, std::move(neighbour.fd));
  }
  return Ok{};
}

}  // namespace

std::vector<size_t> partners_of(size_t index, size_t size) {
  std::set<size_t> partners;
  for (size_t distance = 1; distance < size; distance *= 2) {
    partners.insert((index + distance) % size);
    partners.insert((index + size - distance) % size);
  }
  return {partners.begin(), partners.end()};
}

Result<std::unique_ptr<Links>> connect_links(const LinksPlace& place, const LinksDoor& door,
                                             Failure& failure,
                                             std::chrono::milliseconds operation_timeout,
                                             const Patience& patience) {
  std::map<size_t, UniqueFd> sockets;
  std::set<size_t> awaited;
  const std::string hello = neighbour_hello(door.session, place.ranks[place.index]);
  for (const size_t partner : partners_of(place.index, place.ranks.size())) {
    if (partner < place.index) {
      awaited.insert(partner);
      continue;
    }
    // Its queue takes the connection although it is not accepting yet.
    const PeerDoor& peer = (*door.doors)[static_cast<size_t>(place.ranks[partner])];
    YARD_ASSIGN(UniqueFd fd, connect_tcp(peer.address, peer.port, patience));
    YARD_ASSIGN(fd, secured(door.tunnels, std::move(fd), TlsSide::kClient,
                            failure.name_of(place.ranks[partner])));
    YARD_TRY(send_all(fd.get(), hello, patience));
    sockets.emplace(partner, std::move(fd));
  }
  YARD_TRY(accept_partners(place, door, std::move(awaited), sockets, patience));
  return std::unique_ptr<Links>(
      std::make_unique<TcpLinks>(place, std::move(sockets), failure, operation_timeout));
}

}  // namespace yard::collective
