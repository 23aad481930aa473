#include "collective/ring_internal.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "collective/share_plan_internal.h"

namespace yard::collective {
namespace {

using SteadyClock = std::chrono::steady_clock;

// A connection closes a moment before the word of why it did arrives over the control connections.
constexpr std::chrono::milliseconds kCauseGrace{60};
constexpr std::chrono::seconds kHelloTimeout{5};

bool would_block(int error) {
  return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

}  // namespace

Ring::Ring(RingPlace place, RingSockets sockets, Failure& failure,
           std::chrono::milliseconds operation_timeout)
    : place_(std::move(place)),
      sockets_(std::move(sockets)),
      failure_(failure),
      operation_timeout_(operation_timeout) {}

Error Ring::lost(const CallRecord& call, size_t place_index, int error) {
  return failure_.report_after(
      kCauseGrace,
      {Code::kUnavailable,
       fmt::format("{}: rank {} is gone: {}", describe(call), place_.ranks[place_index],
                   error == 0 ? "connection closed" : std::strerror(error))});
}

Status Ring::move_some(const CallRecord& call, std::span<const std::byte>& out,
                       std::span<std::byte>& in, bool* moved) {
  if (!out.empty()) {
    const ssize_t sent =
        ::send(sockets_.next.get(), out.data(), out.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && !would_block(errno)) return lost(call, next_index(), errno);
    if (sent > 0) {
      out = out.subspan(static_cast<size_t>(sent));
      *moved = true;
    }
  }
  if (!in.empty()) {
    const ssize_t got = ::recv(sockets_.previous.get(), in.data(), in.size(), MSG_DONTWAIT);
    if (got == 0) return lost(call, previous_index(), 0);
    if (got < 0 && !would_block(errno)) return lost(call, previous_index(), errno);
    if (got > 0) {
      in = in.subspan(static_cast<size_t>(got));
      *moved = true;
    }
  }
  return Ok{};
}

Status Ring::exchange(const CallRecord& call, std::span<const std::byte> out,
                      std::span<std::byte> in) {
  auto deadline = SteadyClock::now() + operation_timeout_;
  while (!out.empty() || !in.empty()) {
    if (failure_.failed()) return failure_.status();
    bool moved = false;
    YARD_TRY(move_some(call, out, in, &moved));
    if (moved) {
      deadline = SteadyClock::now() + operation_timeout_;
      continue;
    }
    const int waited = place_.ranks[in.empty() ? next_index() : previous_index()];
    failure_.set_waited_rank(waited);
    if (SteadyClock::now() >= deadline) {
      return failure_.report_after(
          {}, {Code::kDeadlineExceeded,
               fmt::format("{}: waited {} ms for rank {}", describe(call),
                           operation_timeout_.count(), failure_.culprit_of(waited))});
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - SteadyClock::now());
    std::array<pollfd, 3> polled{
        pollfd{.fd = out.empty() ? -1 : sockets_.next.get(), .events = POLLOUT, .revents = 0},
        pollfd{.fd = in.empty() ? -1 : sockets_.previous.get(), .events = POLLIN, .revents = 0},
        pollfd{.fd = failure_.fd(), .events = POLLIN, .revents = 0}};
    ::poll(polled.data(), polled.size(),
           static_cast<int>(std::clamp<int64_t>(left.count(), 0, 1000)));
  }
  failure_.set_waited_rank(-1);
  return Ok{};
}

Status Ring::agree(const CallRecord& call) {
  std::vector<CallRecord> calls(size());
  calls[place_.index] = call;
  std::vector<std::span<std::byte>> blocks;
  for (CallRecord& each : calls) blocks.push_back(std::as_writable_bytes(std::span(&each, 1)));
  YARD_TRY(all_gather(call, blocks));
  for (const CallRecord& each : calls) {
    if (same_call(calls[0], each)) continue;
    return failure_.report_after({}, mismatch(calls[0], each));
  }
  return Ok{};
}

Status Ring::all_reduce(const CallRecord& call, std::byte* inout, size_t element_count) {
  const DType wide = wide_of(call.dtype);
  const size_t element_bytes = size_bytes_of(wide);
  const size_t count_max = (element_count + size() - 1) / size();
  if (scratch_.size() < count_max * element_bytes) scratch_.resize(count_max * element_bytes);
  const auto chunk = [&](size_t index) {
    const Share share = share_of(element_count, size(), index % size(), 1);
    return std::span(inout + share.begin_index * element_bytes, share.count * element_bytes);
  };
  // After step s we hold the sum of s + 2 ranks for one chunk; after the last, of all.
  for (size_t step = 0; step + 1 < size(); ++step) {
    const auto out = chunk(place_.index + size() - step);
    const auto mine = chunk(place_.index + size() - step - 1);
    const std::span<std::byte> received(scratch_.data(), mine.size());
    YARD_TRY(exchange(call, out, received));
    const std::array<std::byte*, 1> dsts{mine.data()};
    const std::array<const std::byte*, 2> srcs{received.data(), mine.data()};
    reduce({.dtype = wide, .op = call.op}, dsts, srcs, mine.size() / element_bytes);
  }
  for (size_t step = 0; step + 1 < size(); ++step)
    YARD_TRY(exchange(call, chunk(place_.index + size() + 1 - step),
                      chunk(place_.index + size() - step)));
  return Ok{};
}

Status Ring::all_gather(const CallRecord& call, std::span<const std::span<std::byte>> blocks) {
  for (size_t step = 0; step + 1 < size(); ++step)
    YARD_TRY(exchange(call, blocks[(place_.index + size() - step) % size()],
                      blocks[(place_.index + size() - step - 1) % size()]));
  return Ok{};
}

Status Ring::broadcast(const CallRecord& call, std::span<std::byte> inout, size_t root_index) {
  if (place_.index != root_index) YARD_TRY(exchange(call, {}, inout));
  if (next_index() != root_index) YARD_TRY(exchange(call, inout, {}));
  return Ok{};
}

namespace {

// Whoever is not the one before us is not let in.
Result<UniqueFd> accept_previous(const RingPlace& place, const RingDoor& door,
                                 const Patience& patience) {
  const int wanted = place.ranks[(place.index + place.size() - 1) % place.size()];
  while (true) {
    YARD_ASSIGN(UniqueFd fd, accept_connection(door.listener, patience));
    Patience short_patience = patience;
    short_patience.deadline = std::min(patience.deadline, SteadyClock::now() + kHelloTimeout);
    FrameReader reader(kSmallPayloadBytesMax);
    auto frame = receive_frame(fd.get(), reader, short_patience);
    if (!frame || frame->type != FrameType::kNeighbour) continue;
    FrameFields fields(frame->payload);
    const std::string session = fields.text();
    const auto rank = static_cast<int>(fields.u32());
    if (!fields.complete() || session != door.session || rank != wanted) continue;
    set_tcp_options(fd.get());
    return fd;
  }
}

}  // namespace

Result<RingSockets> connect_ring(const RingPlace& place, const RingDoor& door,
                                 const Patience& patience) {
  RingSockets sockets;
  // The next one's queue takes the connection although it is not accepting yet.
  YARD_ASSIGN(sockets.next, connect_tcp(door.next_address, door.next_port, patience));
  const std::string hello = FrameWriter(FrameType::kNeighbour)
                                .text(door.session)
                                .u32(static_cast<uint32_t>(place.ranks[place.index]))
                                .bytes();
  YARD_TRY(send_all(sockets.next.get(), hello, patience));
  YARD_ASSIGN(sockets.previous, accept_previous(place, door, patience));
  return sockets;
}

}  // namespace yard::collective
