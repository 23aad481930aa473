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
#include <utility>

#include "collective/share_plan_internal.h"

namespace yard::collective {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr size_t kShareBlockBytes = 4096;

// What still has to move over one connection: of the first the call, then a share of the payload.
struct Moving {
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

struct Transfer {
  size_t place = kNoLink;
  std::vector<Moving> streams;
  bool done() const {
    return std::all_of(streams.begin(), streams.end(),
                       [](const Moving& each) { return each.done(); });
  }
};

std::span<std::byte> head_of(CallRecord& call) {
  return std::as_writable_bytes(std::span(&call, 1));
}

using Streams = std::vector<UniqueFd>;

class TcpLinks final : public Links {
 public:
  TcpLinks(LinksPlace place, std::map<size_t, Streams> sockets, size_t used_count, Failure& failure,
           std::chrono::milliseconds operation_timeout)
      : Links(std::move(place)),
        sockets_(std::move(sockets)),
        used_count_(used_count),
        failure_(failure),
        operation_timeout_(operation_timeout) {}

  Status exchange(const CallRecord& call, size_t to, std::span<const std::byte> out, size_t from,
                  std::span<std::byte> in) override {
    CallRecord sent = call;
    CallRecord received;
    peeked_.clear();
    Transfer sending, receiving;
    if (to != kNoLink) {
      sending = transfer_with(to, sent);
      spread(sending, std::span(const_cast<std::byte*>(out.data()), out.size()));
    }
    if (from != kNoLink) receiving = transfer_with(from, received);
    bool is_checked = from == kNoLink;
    auto deadline = SteadyClock::now() + operation_timeout_;
    while (!sending.done() || !receiving.done() || !is_checked) {
      if (failure_.failed()) return failure_.status();
      bool moved = false;
      YARD_TRY(send_some(call, sending, &moved));
      YARD_TRY(receive_some(call, receiving, &moved));
      if (!is_checked && receiving.done()) {
        if (!same_call(call, received)) return differ(call, received);
        is_checked = true;
        spread(receiving, in);
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

  size_t open_streams() const override { return sockets_.begin()->second.size(); }
  size_t used_streams() const override { return used_count_; }
  void use_streams(size_t count) override {
    YARD_CHECK(1 <= count && count <= open_streams());
    used_count_ = count;
  }
  void keep_streams(size_t count) override {
    use_streams(count);
    for (auto& [partner, streams] : sockets_) streams.resize(count);
  }

 private:
  const Streams& streams_to(size_t partner) const {
    const auto found = sockets_.find(partner);
    YARD_CHECK(found != sockets_.end());
    return found->second;
  }

  Transfer transfer_with(size_t partner, CallRecord& call) const {
    Transfer transfer{.place = partner, .streams = {}};
    transfer.streams.push_back({streams_to(partner)[0].get(), head_of(call), {}});
    return transfer;
  }

  // Both sides of a message spread it alike.
  void spread(Transfer& transfer, std::span<std::byte> body) const {
    const Streams& streams = streams_to(transfer.place);
    const size_t count = std::clamp<size_t>(body.size() / kStreamBytesMin, 1, used_count_);
    for (size_t i = 0; i < count; ++i) {
      const Share share = share_of(body.size(), count, i, kShareBlockBytes);
      if (i > 0) transfer.streams.push_back({streams[i].get(), {}, {}});
      transfer.streams[i].body = body.subspan(share.begin_index, share.count);
    }
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

  Status send_some(const CallRecord& call, Transfer& sending, bool* moved) {
    for (Moving& stream : sending.streams) {
      if (stream.done()) continue;
      auto pieces = stream.pieces();
      msghdr message{};
      message.msg_iov = pieces.data();
      message.msg_iovlen = pieces.size();
      const ssize_t sent = ::sendmsg(stream.fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent < 0 && !would_block(errno)) return lost(call, sending.place, errno);
      if (sent <= 0) continue;
      stream.advance(static_cast<size_t>(sent));
      *moved = true;
    }
    return Ok{};
  }

  Status receive_some(const CallRecord& call, Transfer& receiving, bool* moved) {
    for (Moving& stream : receiving.streams) {
      if (stream.done()) continue;
      auto pieces = stream.pieces();
      msghdr message{};
      message.msg_iov = pieces.data();
      message.msg_iovlen = pieces.size();
      const ssize_t got = ::recvmsg(stream.fd, &message, MSG_DONTWAIT);
      if (got == 0) return lost(call, receiving.place, 0);
      if (got < 0 && !would_block(errno)) return lost(call, receiving.place, errno);
      if (got < 0) continue;
      stream.advance(static_cast<size_t>(got));
      *moved = true;
    }
    return Ok{};
  }

  Status wait_for(const CallRecord& call, const Transfer& sending, const Transfer& receiving,
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
    std::vector<pollfd> polled{{.fd = failure_.fd(), .events = POLLIN, .revents = 0}};
    std::vector<size_t> others;
    for (const auto& [other, streams] : sockets_) {
      if (other == receiving.place || peeked_.contains(other)) continue;
      polled.push_back({.fd = streams[0].get(), .events = POLLIN, .revents = 0});
      others.push_back(other);
    }
    for (const Moving& stream : sending.streams)
      if (!stream.done()) polled.push_back({.fd = stream.fd, .events = POLLOUT, .revents = 0});
    for (const Moving& stream : receiving.streams)
      if (!stream.done()) polled.push_back({.fd = stream.fd, .events = POLLIN, .revents = 0});
    ::poll(polled.data(), polled.size(), static_cast<int>(std::min<int64_t>(left.count(), 1000)));
    for (size_t i = 0; i < others.size(); ++i)
      if (polled[1 + i].revents != 0) YARD_TRY(peek(call, others[i]));
    return Ok{};
  }

  // Ranks that call different operations may each wait for one that waits for a third. The one to
  // whom the odd one has sent finds out here.
  Status peek(const CallRecord& call, size_t partner) {
    CallRecord theirs;
    const ssize_t got =
        ::recv(streams_to(partner)[0].get(), &theirs, sizeof theirs, MSG_PEEK | MSG_DONTWAIT);
    peeked_.insert(partner);
    if (got != static_cast<ssize_t>(sizeof theirs) || theirs.sequence != call.sequence ||
        same_call(call, theirs))
      return Ok{};
    return differ(call, theirs);
  }

  std::set<size_t> peeked_;            // partners whose next message was looked at meanwhile
  std::map<size_t, Streams> sockets_;  // by place; all have as many, and there is a partner
  size_t used_count_;
  Failure& failure_;
  const std::chrono::milliseconds operation_timeout_;
};

Error other_count(const LinksPlace& place, const LinksDoor& door, const NeighbourName& theirs) {
  return {
      Code::kInvalidArgument,
      fmt::format("rank {} talks to other hosts over {} connections each, rank {} over {}",
                  place.ranks[place.index], door.stream_count, theirs.rank, theirs.stream_count)};
}

// Whoever is not one of `awaited` is not let in.
Status accept_partners(const LinksPlace& place, const LinksDoor& door,
                       std::set<std::pair<size_t, size_t>> awaited,
                       std::map<size_t, Streams>& sockets, const Patience& patience) {
  while (!awaited.empty()) {
    YARD_ASSIGN(Neighbour neighbour,
                accept_neighbour(door.listener, Door::kTcp, door.session, door.tunnels, patience));
    const NeighbourName& name = neighbour.name;
    const auto found = std::find(place.ranks.begin(), place.ranks.end(), name.rank);
    const auto partner = static_cast<size_t>(found - place.ranks.begin());
    if (!sockets.contains(partner)) continue;
    if (name.stream_count != door.stream_count) return other_count(place, door, name);
    if (awaited.erase({partner, name.stream}) == 0) continue;
    sockets[partner][name.stream] = std::move(neighbour.fd);
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
  std::map<size_t, Streams> sockets;
  std::set<std::pair<size_t, size_t>> awaited;
  const int rank = place.ranks[place.index];
  for (const size_t partner : partners_of(place.index, place.ranks.size())) {
    Streams& streams = sockets[partner];
    streams.resize(door.stream_count);
    for (size_t stream = 0; stream < door.stream_count; ++stream) {
      if (partner < place.index) {
        awaited.insert({partner, stream});
        continue;
      }
      // Its queue takes the connection although it is not accepting yet.
      const PeerDoor& peer = (*door.doors)[static_cast<size_t>(place.ranks[partner])];
      YARD_ASSIGN(UniqueFd fd, connect_tcp(peer.address, peer.port, patience));
      YARD_ASSIGN(streams[stream], secured(door.tunnels, std::move(fd), TlsSide::kClient,
                                           failure.name_of(place.ranks[partner])));
      const NeighbourName name{.rank = rank,
                               .stream = static_cast<uint8_t>(stream),
                               .stream_count = static_cast<uint8_t>(door.stream_count)};
      YARD_TRY(send_all(streams[stream].get(), neighbour_hello(door.session, name), patience));
    }
  }
  YARD_TRY(accept_partners(place, door, std::move(awaited), sockets, patience));
  return std::unique_ptr<Links>(std::make_unique<TcpLinks>(
      place, std::move(sockets), door.used_count, failure, operation_timeout));
}

}  // namespace yard::collective
