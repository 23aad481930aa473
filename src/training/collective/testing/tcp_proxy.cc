#include "collective/testing/tcp_proxy.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <vector>

#include "base/random.h"
#include "collective/membership_internal.h"
#include "collective/socket_internal.h"

namespace yard::collective {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr size_t kPieceBytes = size_t{64} << 10;
const std::string kLoopback = "127.0.0.1";

void reset(UniqueFd& fd) {
  const linger none{.l_onoff = 1, .l_linger = 0};  // close() sends RST
  ::setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &none, sizeof none);
  fd.reset();
}

}  // namespace

struct TcpProxy::Door {
  UniqueFd listener;
  uint16_t target_port = 0;
  bool is_master = false;
};

struct TcpProxy::Direction {
  struct Piece {
    SteadyClock::time_point due;
    std::string bytes;
  };
  UniqueFd from;
  int to = -1;  // the other direction's `from`
  std::deque<Piece> pieces;
  // Frames that have to be read before the rest is passed on as it is.
  std::unique_ptr<FrameReader> frames;
  bool is_over = false;
};

struct TcpProxy::Connection {
  bool is_master = false;
  int world_size = 0;
  Direction out;  // from who connected
  Direction back;
};

TcpProxy::TcpProxy(uint16_t master_port, std::chrono::milliseconds delay_max, uint64_t seed)
    : delay_max_(delay_max), seed_(seed), wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  port_ = open_door(master_port, true);
  thread_ = std::thread([this] { run(); });
}

TcpProxy::~TcpProxy() {
  {
    std::lock_guard lock(mutex_);
    is_ended_ = true;
  }
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_.get(), &one, sizeof one);
  thread_.join();
}

size_t TcpProxy::data_connection_count() const {
  std::lock_guard lock(mutex_);
  return data_connection_count_;
}

void TcpProxy::reset_newest_data_connection() {
  std::lock_guard lock(mutex_);
  const auto newest =
      std::find_if(connections_.rbegin(), connections_.rend(),
                   [](const Connection& connection) { return !connection.is_master; });
  YARD_CHECK(newest != connections_.rend());
  reset(newest->out.from);
  reset(newest->back.from);
  connections_.erase(std::next(newest).base());
}

void TcpProxy::silence_data_connections() {
  std::lock_guard lock(mutex_);
  is_silent_ = true;
}

uint16_t TcpProxy::open_door(uint16_t target_port, bool is_master) {
  auto listener = listen_tcp(kLoopback, 0);
  YARD_CHECK(listener.has_value());
  const uint16_t port = local_port(listener->get());
  doors_.push_back({*std::move(listener), target_port, is_master});
  return port;
}

void TcpProxy::accept_at(const Door& door) {
  UniqueFd fd(::accept4(door.listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!fd.valid()) return;
  const Patience patience{.deadline = SteadyClock::now() + std::chrono::seconds(30), .stop = {}};
  auto target = connect_tcp(kLoopback, door.target_port, patience);
  if (!target) return;  // it is told by the end of its connection
  set_tcp_options(fd.get());
  Connection& connection = connections_.emplace_back();
  connection.is_master = door.is_master;
  connection.out.to = target->get();
  connection.back.to = fd.get();
  connection.out.from = std::move(fd);
  connection.back.from = *std::move(target);
  data_connection_count_ += door.is_master ? 0 : 1;
  if (!door.is_master) return;
  connection.out.frames = std::make_unique<FrameReader>(kSmallPayloadBytesMax);
  connection.back.frames = std::make_unique<FrameReader>(kFramePayloadBytesMax);
}

// The others shall find its data through us.
std::string TcpProxy::introduced(Connection& connection, const Frame& frame) {
  auto hello = decode_hello(frame);
  YARD_CHECK(hello.has_value());
  connection.world_size = static_cast<int>(hello->world_size);
  hello->data_port = open_door(hello->data_port, false);
  connection.out.frames.reset();
  return encode_hello(*hello);
}

std::string TcpProxy::welcomed(Connection& connection, const Frame& frame) {
  auto welcome = decode_welcome(frame, connection.world_size);
  YARD_CHECK(welcome.has_value());
  if (rank_zero_port_ == 0) rank_zero_port_ = open_door(welcome->doors[0].port, false);
  welcome->doors[0].port = rank_zero_port_;
  connection.back.frames.reset();
  return encode_welcome(*welcome, connection.world_size);
}

void TcpProxy::read_frame(Connection& connection, Direction& direction) {
  auto frame = direction.frames->read(direction.from.get());
  if (!frame) {
    direction.is_over = true;
    return;
  }
  if (!*frame) return;
  if ((*frame)->type == FrameType::kHello) return push(direction, introduced(connection, **frame));
  if ((*frame)->type == FrameType::kWelcome) return push(direction, welcomed(connection, **frame));
  if ((*frame)->type == FrameType::kWaiting) return;  // for people
  direction.is_over = true;                           // a refusal is as good as an end
}

void TcpProxy::read_from(Connection& connection, Direction& direction) {
  if (direction.frames) return read_frame(connection, direction);
  std::string bytes(kPieceBytes, '\0');
  const ssize_t got = ::recv(direction.from.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
  if (got < 0 && would_block(errno)) return;
  if (got <= 0) {
    direction.is_over = true;
    return;
  }
  bytes.resize(static_cast<size_t>(got));
  push(direction, std::move(bytes));
}

void TcpProxy::push(Direction& direction, std::string bytes) {
  const auto limit_us = static_cast<uint64_t>(std::chrono::microseconds(delay_max_).count()) + 1;
  const std::chrono::microseconds delay(random_below(limit_us, seed_, 0, piece_count_++));
  auto due = SteadyClock::now() + delay;
  if (!direction.pieces.empty()) due = std::max(due, direction.pieces.back().due);
  direction.pieces.push_back({due, std::move(bytes)});
}

void TcpProxy::write_to(Connection& connection, Direction& direction) {
  if (is_silent_ && !connection.is_master) direction.pieces.clear();
  while (!direction.pieces.empty() && direction.pieces.front().due <= SteadyClock::now()) {
    std::string& bytes = direction.pieces.front().bytes;
    const ssize_t sent =
        ::send(direction.to, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && would_block(errno)) return;
    if (sent < 0) direction.is_over = true;
    if (sent < 0) return direction.pieces.clear();
    bytes.erase(0, static_cast<size_t>(sent));
    if (bytes.empty()) direction.pieces.pop_front();
  }
  if (!direction.is_over || !direction.pieces.empty()) return;
  ::shutdown(direction.to, SHUT_WR);
}

void TcpProxy::run() {
  constexpr int kStepMs = 1;  // so exact are the delays
  std::vector<pollfd> polled;
  std::unique_lock lock(mutex_);
  while (!is_ended_) {
    polled.assign(1, {.fd = wake_.get(), .events = POLLIN, .revents = 0});
    bool is_pending = false;
    const auto add = [&](int fd) { polled.push_back({.fd = fd, .events = POLLIN, .revents = 0}); };
    for (const Door& door : doors_) add(door.listener.get());
    for (const Connection& connection : connections_)
      for (const Direction* each : {&connection.out, &connection.back}) {
        if (!each->is_over) add(each->from.get());
        is_pending = is_pending || !each->pieces.empty();
      }
    lock.unlock();
    // What others have closed meanwhile wakes us for nothing.
    ::poll(polled.data(), polled.size(), is_pending ? kStepMs : 100);
    lock.lock();
    const size_t door_count = doors_.size();
    for (size_t i = 0; i < door_count; ++i) accept_at(*std::next(doors_.begin(), ptrdiff_t(i)));
    for (Connection& connection : connections_)
      for (Direction* each : {&connection.out, &connection.back}) {
        if (!each->is_over) read_from(connection, *each);
        write_to(connection, *each);
      }
    std::erase_if(connections_, [](const Connection& connection) {
      return connection.out.is_over && connection.back.is_over && connection.out.pieces.empty() &&
             connection.back.pieces.empty();
    });
  }
}

}  // namespace yard::collective
