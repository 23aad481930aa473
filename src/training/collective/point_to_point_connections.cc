#include "collective/point_to_point_connections_internal.h"

#include <fmt/format.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <thread>

namespace yard::collective {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr size_t kEagerBytesMax = size_t{64} << 10;
// What may lie at a receiver that has not asked for it, per sender; beyond it messages are offered.
constexpr size_t kEagerLyingBytesMax = size_t{4} << 20;
constexpr std::chrono::seconds kConnectTimeout{30};

// Fills [have, whole) of `to`.
Progress fill(int fd, std::byte* to, size_t* have, size_t whole) {
  while (*have < whole) {
    const ssize_t got = ::recv(fd, to + *have, whole - *have, MSG_DONTWAIT);
    if (got == 0) return Progress::kOver;
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return would_block(errno) ? Progress::kNotYet : Progress::kOver;
    *have += static_cast<size_t>(got);
  }
  return Progress::kComplete;
}

}  // namespace

void Connections::begin(const std::shared_ptr<Message>& message) {
  if (message->call.kind == CallKind::kSend)
    send(message);
  else
    receive(message);
}

void Connections::wait_for_cause(Error error) {
  (void)failure_.report_after(kCauseGrace, std::move(error));
}

// ---- sending

Result<Outgoing*> Connections::outgoing_to(int peer) {
  Outgoing& outgoing = outgoing_[peer];
  if (outgoing.fd.valid()) return &outgoing;
  const PeerDoor& door = place_.doors[static_cast<size_t>(peer)];
  const Patience patience{
      .deadline = SteadyClock::now() + kConnectTimeout, .stop = {}, .failure = &failure_};
  if (door.is_near) {
    YARD_ASSIGN(outgoing.fd, connect_abstract(door.team_name, patience));
  } else {
    YARD_ASSIGN(UniqueFd fd, connect_tcp(door.address, door.port, patience));
    YARD_ASSIGN(outgoing.fd, secured(place_.tunnels.get(), std::move(fd), TlsSide::kClient,
                                     failure_.name_of(peer)));
  }
  YARD_TRY(send_all(outgoing.fd.get(), neighbour_hello(place_.session, {.rank = place_.rank}),
                    patience));
  return &outgoing;
}

void Connections::send(const std::shared_ptr<Message>& message) {
  auto found = outgoing_to(message->peer());
  if (!found) {
    wait_for_cause({Code::kUnavailable,
                    fmt::format("{}: {} has left or died: {}", describe(message->call),
                                failure_.name_of(message->peer()), found.error().message)});
    finish_(*message, failure_.status());
    return;
  }
  Outgoing& outgoing = **found;
  WireItem item;
  item.header.channel = message->channel;
  item.header.id = outgoing.next_id++;
  item.header.tag = message->tag;
  item.header.size_bytes = message->out.size();
  if (message->out.size() <= kEagerBytesMax &&
      outgoing.eager_bytes + message->out.size() <= kEagerLyingBytesMax) {
    item.header.type = WireType::kEager;
    item.payload = message->out;
    item.sent = message;
    outgoing.eager_bytes += message->out.size();
    outgoing.eager_bytes_of.emplace(item.header.id, message->out.size());
  } else {
    item.header.type = WireType::kOffer;
    item.header.address = reinterpret_cast<uintptr_t>(message->out.data());
    outgoing.offered.emplace(item.header.id, message);
  }
  outgoing.writer.push(std::move(item));
  write(message->peer(), outgoing);
}

void Connections::write(int peer, Outgoing& outgoing) {
  std::vector<std::shared_ptr<Message>> done;
  const Status status = outgoing.writer.write(outgoing.fd.get(), done);
  for (const auto& message : done) finish_(*message, Ok{});
  if (!status) lose(peer, outgoing, status.error().message);
}

void Connections::read_replies(int peer, Outgoing& outgoing) {
  while (outgoing.fd.valid()) {
    const Progress progress = fill(outgoing.fd.get(), reinterpret_cast<std::byte*>(&outgoing.reply),
                                   &outgoing.reply_bytes, sizeof outgoing.reply);
    if (progress == Progress::kNotYet) return;
    if (progress == Progress::kOver) return lose(peer, outgoing, "connection closed");
    outgoing.reply_bytes = 0;
    handle_reply(peer, outgoing, outgoing.reply);
  }
}

void Connections::handle_reply(int peer, Outgoing& outgoing, const WireHeader& reply) {
  if (const auto eager = outgoing.eager_bytes_of.find(reply.id);
      eager != outgoing.eager_bytes_of.end()) {
    outgoing.eager_bytes -= eager->second;
    outgoing.eager_bytes_of.erase(eager);
    return;
  }
  const auto offered = outgoing.offered.find(reply.id);
  if (reply.magic != WireHeader().magic || offered == outgoing.offered.end())
    return fail(
        {Code::kCorrupt, fmt::format("{} answers what it was not asked", failure_.name_of(peer))});
  const std::shared_ptr<Message> message = std::move(offered->second);
  outgoing.offered.erase(offered);
  if (reply.type == WireType::kTaken) return finish_(*message, Ok{});
  WireItem item;
  item.header.type = WireType::kData;
  item.header.channel = message->channel;
  item.header.id = reply.id;
  item.header.tag = message->tag;
  item.header.size_bytes = message->out.size();
  item.payload = message->out;
  item.sent = message;
  outgoing.writer.push(std::move(item));
  write(peer, outgoing);
}

void Connections::lose(int peer, Outgoing& outgoing, const std::string& reason) {
  outgoing.fd.reset();
  std::vector<std::shared_ptr<Message>> lost = outgoing.writer.drop();
  for (auto& [id, message] : outgoing.offered) lost.push_back(std::move(message));
  outgoing = Outgoing();
  gone_.insert(peer);
  // Whoever has all it wants from us may go.
  if (lost.empty()) return;
  wait_for_cause(
      {Code::kUnavailable, fmt::format("{}: {} is gone: {}", describe(lost.front()->call),
                                       failure_.name_of(peer), reason)});
  for (const auto& message : lost) finish_(*message, failure_.status());
}

bool Connections::sending() const {
  return std::any_of(outgoing_.begin(), outgoing_.end(), [](const auto& entry) {
    return entry.second.fd.valid() && !entry.second.writer.empty();
  });
}

void Connections::linger(SteadyClock::time_point deadline) {
  for (auto& [peer, outgoing] : outgoing_)
    if (outgoing.fd.valid()) ::shutdown(outgoing.fd.get(), SHUT_WR);
  for (auto& [peer, outgoing] : outgoing_) {
    int unsent_bytes = 0;
    // Closing with replies unread would take back what is still on its way (RFC 1122, 4.2.2.13).
    while (outgoing.fd.valid() && !place_.doors[static_cast<size_t>(peer)].is_near &&
           ::ioctl(outgoing.fd.get(), SIOCOUTQ, &unsent_bytes) == 0 && unsent_bytes > 0 &&
           SteadyClock::now() < deadline && !failure_.failed()) {
      read_replies(peer, outgoing);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
}

// ---- receiving

bool Connections::matches(const Message& receive, const Arrival& arrival) const {
  return receive.channel == arrival.header.channel && receive.tag == arrival.header.tag &&
         (receive.peer() == kAnyRank || receive.peer() == arrival.source);
}

void Connections::receive(const std::shared_ptr<Message>& message) {
  const auto found = std::find_if(arrivals_.begin(), arrivals_.end(),
                                  [&](const auto& arrival) { return matches(*message, *arrival); });
  if (found == arrivals_.end()) {
    receives_.push_back(message);
    // A connection shows when the peer leaves without having sent anything.
    if (message->peer() != kAnyRank && !outgoing_to(message->peer())) gone_.insert(message->peer());
    return;
  }
  const std::shared_ptr<Arrival> arrival = *found;
  arrivals_.erase(found);
  arrival->receive = message;
  if (!sizes_agree(*message, *arrival)) return finish_(*message, failure_.status());
  if (arrival->header.type == WireType::kOffer)
    take_offer(arrival);
  else if (arrival->whole)
    take(*arrival);
}

std::shared_ptr<Message> Connections::match_receive(const Arrival& arrival) {
  const auto found = std::find_if(receives_.begin(), receives_.end(),
                                  [&](const auto& receive) { return matches(*receive, arrival); });
  if (found == receives_.end()) return nullptr;
  std::shared_ptr<Message> receive = *found;
  receives_.erase(found);
  return receive;
}

bool Connections::sizes_agree(const Message& receive, const Arrival& arrival) {
  if (receive.in.size() == arrival.header.size_bytes) return true;
  fail(
      {Code::kInvalidArgument,
       fmt::format("rank {} sends {} bytes with tag {}, rank {} receives {}", arrival.source,
                   arrival.header.size_bytes, arrival.header.tag, place_.rank, receive.in.size())});
  return false;
}

void Connections::finish_receive(Arrival& arrival) {
  if (arrival.receive->source != nullptr) *arrival.receive->source = arrival.source;
  finish_(*arrival.receive, Ok{});
}

void Connections::take(Arrival& arrival) {
  if (!arrival.payload.empty())
    std::memcpy(arrival.receive->in.data(), arrival.payload.data(), arrival.payload.size());
  if (Incoming* incoming = connection(arrival.connection_id))
    reply(*incoming, WireType::kTaken, arrival.header.id);
  finish_receive(arrival);
}

void Connections::take_offer(const std::shared_ptr<Arrival>& arrival) {
  Incoming* incoming = connection(arrival->connection_id);
  if (incoming == nullptr) {
    wait_for_cause(
        {Code::kUnavailable,
         fmt::format("{}: {} has left before its message was received",
                     describe(arrival->receive->call), failure_.name_of(arrival->source))});
    return finish_(*arrival->receive, failure_.status());
  }
  if (read_memory(*incoming, *arrival)) {
    reply(*incoming, WireType::kTaken, arrival->header.id);
    return finish_receive(*arrival);
  }
  incoming->accepted.emplace(arrival->header.id, arrival);
  reply(*incoming, WireType::kAccept, arrival->header.id);
}

bool Connections::read_memory(const Incoming& incoming, const Arrival& arrival) {
  if (incoming.pid == 0) return false;
  std::span<std::byte> left = arrival.receive->in;
  uint64_t address = arrival.header.address;
  constexpr size_t kPieceBytes = size_t{4} << 20;
  while (!left.empty()) {
    if (failure_.failed()) return false;
    const iovec to{.iov_base = left.data(), .iov_len = std::min(left.size(), kPieceBytes)};
    const iovec from{.iov_base = reinterpret_cast<void*>(address), .iov_len = to.iov_len};
    const ssize_t got = ::process_vm_readv(incoming.pid, &to, 1, &from, 1, 0);
    if (got <= 0) return false;
    left = left.subspan(static_cast<size_t>(got));
    address += static_cast<uint64_t>(got);
  }
  // As long as its connection is open, it was that process whose memory we read.
  char byte = 0;
  const ssize_t state = ::recv(incoming.fd.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return state > 0 || (state < 0 && would_block(errno));
}

void Connections::reply(Incoming& incoming, WireType type, uint64_t id) {
  WireItem item;
  item.header.type = type;
  item.header.id = id;
  incoming.replies.push(std::move(item));
  std::vector<std::shared_ptr<Message>> done;
  // A peer that is gone is noticed when we read from it.
  (void)incoming.replies.write(incoming.fd.get(), done);
}

Incoming* Connections::connection(uint64_t id) {
  for (Incoming& incoming : incoming_)
    if (incoming.id == id) return &incoming;
  return nullptr;
}

void Connections::accept_from(const UniqueFd& listener, bool is_near) {
  while (true) {
    UniqueFd fd(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd.valid()) return;
    Incoming incoming;
    if (is_near) {
      const PeerProcess process = peer_process(fd.get());
      if (process.uid != ::geteuid()) continue;
      incoming.pid = process.pid;
    } else {
      set_tcp_options(fd.get());
      const std::string peer = peer_address(fd.get());
      auto ours = secured(place_.tunnels.get(), std::move(fd), TlsSide::kServer, peer);
      if (!ours) continue;
      fd = *std::move(ours);
    }
    incoming.id = ++connection_count_;
    incoming.fd = std::move(fd);
    incoming.deadline = SteadyClock::now() + kHelloTimeout;
    incoming_.push_back(std::move(incoming));
  }
}

bool Connections::introduce(Incoming& incoming) {
  auto frame = incoming.hello.read(incoming.fd.get());
  if (frame && !*frame) return SteadyClock::now() < incoming.deadline;
  const auto name = frame ? name_of_neighbour(**frame, place_.session) : std::nullopt;
  if (!name || name->rank < 0 || static_cast<size_t>(name->rank) >= place_.doors.size() ||
      name->rank == place_.rank)
    return false;
  incoming.peer = name->rank;
  return true;
}

bool Connections::read(Incoming& incoming) {
  if (incoming.peer < 0) {
    if (!introduce(incoming)) return false;
    if (incoming.peer < 0) return true;
  }
  while (!failure_.failed()) {
    const Progress progress = incoming.filling ? read_payload(incoming) : read_header(incoming);
    if (progress != Progress::kComplete) return progress == Progress::kNotYet;
  }
  return true;
}

Progress Connections::read_header(Incoming& incoming) {
  const Progress progress = fill(incoming.fd.get(), reinterpret_cast<std::byte*>(&incoming.header),
                                 &incoming.header_bytes, sizeof incoming.header);
  if (progress == Progress::kComplete) {
    incoming.header_bytes = 0;
    arrived(incoming);
  }
  return progress;
}

Progress Connections::read_payload(Incoming& incoming) {
  const Progress progress = fill(incoming.fd.get(), incoming.payload.data(),
                                 &incoming.payload_bytes, incoming.payload.size());
  if (progress == Progress::kComplete) whole(incoming);
  return progress;
}

void Connections::arrived(Incoming& incoming) {
  const WireHeader& header = incoming.header;
  const auto refuse = [&] {
    fail({Code::kCorrupt, fmt::format("{} sent a message that has no place here",
                                      failure_.name_of(incoming.peer))});
  };
  // Before a receive is matched: nobody else would end it.
  if (header.magic != WireHeader().magic) return refuse();
  std::shared_ptr<Arrival> arrival;
  if (header.type == WireType::kData) {
    const auto accepted = incoming.accepted.find(header.id);
    if (accepted != incoming.accepted.end() &&
        accepted->second->header.size_bytes == header.size_bytes) {
      arrival = std::move(accepted->second);
      incoming.accepted.erase(accepted);
    }
  } else if (header.type == WireType::kOffer ||
             (header.type == WireType::kEager && header.size_bytes <= kEagerBytesMax)) {
    arrival = std::make_shared<Arrival>();
    arrival->connection_id = incoming.id;
    arrival->source = incoming.peer;
    arrival->header = header;
    arrival->receive = match_receive(*arrival);
    if (arrival->receive && !sizes_agree(*arrival->receive, *arrival))
      return finish_(*arrival->receive, failure_.status());
    if (!arrival->receive) arrivals_.push_back(arrival);
  }
  if (!arrival) return refuse();
  if (header.type == WireType::kOffer) {
    if (arrival->receive) take_offer(arrival);
    return;
  }
  if (!arrival->receive) arrival->payload.resize(header.size_bytes);
  incoming.payload = arrival->receive ? arrival->receive->in : std::span(arrival->payload);
  incoming.payload_bytes = 0;
  incoming.filling = std::move(arrival);
}

void Connections::whole(Incoming& incoming) {
  const std::shared_ptr<Arrival> arrival = std::move(incoming.filling);
  incoming.filling.reset();
  arrival->whole = true;
  if (!arrival->receive) return;
  if (!arrival->payload.empty()) return take(*arrival);  // its receive came meanwhile
  if (arrival->header.type == WireType::kEager)
    reply(incoming, WireType::kTaken, arrival->header.id);
  finish_receive(*arrival);
}

void Connections::close(Incoming& incoming) {
  std::vector<std::shared_ptr<Message>> lost;
  if (incoming.filling && incoming.filling->receive) lost.push_back(incoming.filling->receive);
  for (const auto& [id, arrival] : incoming.accepted) lost.push_back(arrival->receive);
  std::erase_if(arrivals_, [&](const auto& arrival) { return arrival == incoming.filling; });
  if (incoming.peer >= 0) gone_.insert(incoming.peer);
  if (lost.empty()) return;
  wait_for_cause({Code::kUnavailable,
                  fmt::format("{}: {} has left the group or died", describe(lost.front()->call),
                              failure_.name_of(incoming.peer))});
  for (const auto& message : lost) finish_(*message, failure_.status());
}

// A peer closes its connections when it leaves the group. What it sent before may still be unread.
void Connections::give_up_on_gone() {
  const auto may_come_from = [&](int peer) {
    return std::any_of(incoming_.begin(), incoming_.end(), [&](const Incoming& incoming) {
      return incoming.peer == peer || incoming.peer < 0;
    });
  };
  for (auto at = receives_.begin(); at != receives_.end();) {
    const std::shared_ptr<Message> message = *at;
    if (!gone_.contains(message->peer()) || may_come_from(message->peer())) {
      ++at;
      continue;
    }
    at = receives_.erase(at);
    wait_for_cause({Code::kUnavailable,
                    fmt::format("{}: {} has left the group or died", describe(message->call),
                                failure_.name_of(message->peer()))});
    finish_(*message, failure_.status());
  }
}

// ---- both

void Connections::step(int wake_fd, std::chrono::milliseconds timeout) {
  std::vector<pollfd> polled{
      {.fd = wake_fd, .events = POLLIN, .revents = 0},
      {.fd = failure_.failed() ? -1 : failure_.fd(), .events = POLLIN, .revents = 0},
      {.fd = place_.data_listener.get(), .events = POLLIN, .revents = 0},
      {.fd = place_.team_listener.get(), .events = POLLIN, .revents = 0}};
  const auto add = [&](int fd, bool wants_to_write) {
    const auto events = static_cast<short>(POLLIN | (wants_to_write ? POLLOUT : 0));
    polled.push_back({.fd = fd, .events = events, .revents = 0});
  };
  for (const auto& [peer, outgoing] : outgoing_)
    add(outgoing.fd.get(), outgoing.fd.valid() && !outgoing.writer.empty());
  const size_t incoming_at = polled.size();
  for (const Incoming& incoming : incoming_) add(incoming.fd.get(), !incoming.replies.empty());
  if (::poll(polled.data(), polled.size(), static_cast<int>(timeout.count())) < 0) return;
  auto state = polled.begin() + 4;
  for (auto& [peer, outgoing] : outgoing_) {
    const short events = (state++)->revents;
    if (events != 0 && outgoing.fd.valid()) read_replies(peer, outgoing);
    if ((events & POLLOUT) != 0 && outgoing.fd.valid()) write(peer, outgoing);
  }
  state = polled.begin() + static_cast<std::ptrdiff_t>(incoming_at);
  for (auto at = incoming_.begin(); at != incoming_.end();) {
    const short events = (state++)->revents;
    std::vector<std::shared_ptr<Message>> none;
    if ((events & POLLOUT) != 0) (void)at->replies.write(at->fd.get(), none);
    const bool is_late = at->peer < 0 && SteadyClock::now() >= at->deadline;
    if ((events != 0 || is_late) && !read(*at)) {
      // Out of the list first: what it offered can no longer be had.
      std::list<Incoming> over;
      over.splice(over.begin(), incoming_, at++);
      close(over.front());
    } else {
      ++at;
    }
  }
  accept_from(place_.data_listener, false);
  accept_from(place_.team_listener, true);
  give_up_on_gone();
}

void Connections::finish_all(const Status& status) {
  std::vector<std::shared_ptr<Message>> all(receives_.begin(), receives_.end());
  receives_.clear();
  for (auto& [peer, outgoing] : outgoing_) {
    for (auto& message : outgoing.writer.drop()) all.push_back(std::move(message));
    for (auto& [id, message] : outgoing.offered) all.push_back(std::move(message));
  }
  for (const Incoming& incoming : incoming_) {
    if (incoming.filling && incoming.filling->receive) all.push_back(incoming.filling->receive);
    for (const auto& [id, arrival] : incoming.accepted) all.push_back(arrival->receive);
  }
  outgoing_.clear();
  incoming_.clear();
  arrivals_.clear();
  for (const auto& message : all) finish_(*message, status);
}

}  // namespace yard::collective
