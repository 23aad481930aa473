#include "collective/tls_tunnel_internal.h"

#include <fmt/format.h>
#include <linux/sockios.h>
#include <openssl/err.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "collective/frame_internal.h"
#include "collective/socket_internal.h"

namespace yard::collective {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr size_t kLoadBytes = size_t{64} << 10;
constexpr std::chrono::seconds kClientTimeout{30};
constexpr std::chrono::seconds kDrainTimeout{2};

// Of the last failed call, and forgets it.
std::string last_reason(bool* is_end) {
  const unsigned long error = ::ERR_get_error();
  *is_end = error == 0 || ERR_GET_REASON(error) == SSL_R_UNEXPECTED_EOF_WHILE_READING;
  const char* reason = ::ERR_reason_error_string(error);
  ::ERR_clear_error();
  return reason == nullptr ? "connection closed" : reason;
}

std::string refused(const std::string& message) {
  return FrameWriter(FrameType::kRefused).u8(0).error({Code::kInvalidArgument, message}).bytes();
}

void say(int fd, const std::string& bytes) {
  ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

}  // namespace

Result<TlsTunnels::Tunnel::Made> TlsTunnels::Tunnel::make(UniqueFd tcp, TlsSide side,
                                                          const std::string& peer,
                                                          SSL_CTX* context) {
  std::array<int, 2> pair{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair.data()) != 0)
    return errno_error("socketpair", errno);
  Made made{.ours = UniqueFd(pair[0]), .tunnel = std::unique_ptr<Tunnel>(new Tunnel())};
  Tunnel& tunnel = *made.tunnel;
  tunnel.plain_.reset(pair[1]);
  tunnel.ssl_.reset(SSL_new(context));
  if (!tunnel.ssl_ || SSL_set_fd(tunnel.ssl_.get(), tcp.get()) != 1)
    return Error{Code::kExhausted, "no memory for a TLS connection"};
  side == TlsSide::kClient ? SSL_set_connect_state(tunnel.ssl_.get())
                           : SSL_set_accept_state(tunnel.ssl_.get());
  tunnel.tcp_ = std::move(tcp);
  tunnel.side_ = side;
  tunnel.peer_ = peer;
  tunnel.deadline_ =
      SteadyClock::now() + (side == TlsSide::kClient ? kClientTimeout : kHelloTimeout);
  tunnel.out_.bytes.resize(kLoadBytes);
  tunnel.in_.bytes.resize(kLoadBytes);
  return made;
}

bool TlsTunnels::Tunnel::step() {
  if (state_ == State::kHandshake) shake_hands();
  if (state_ == State::kOpen || state_ == State::kPlain) carry();
  if (state_ == State::kDraining) drain();
  return state_ != State::kOver;
}

void TlsTunnels::Tunnel::append_to(std::vector<pollfd>& polled) const {
  const bool is_open = state_ == State::kOpen || state_ == State::kPlain;
  short tcp_events = wants_write_ ? POLLOUT : 0;
  if (state_ != State::kOpen || (in_.empty() && !tls_ended_)) tcp_events |= POLLIN;
  short plain_events = is_open && !in_.empty() ? POLLOUT : 0;
  if (is_open && out_.empty() && !plain_ended_) plain_events |= POLLIN;
  // Where nothing is wanted a connection that is over would wake us again and again.
  polled.push_back({.fd = tcp_events != 0 ? tcp_.get() : -1, .events = tcp_events, .revents = 0});
  polled.push_back(
      {.fd = plain_events != 0 ? plain_.get() : -1, .events = plain_events, .revents = 0});
}

// The other side begins with a frame of ours, which no record of TLS looks like (RFC 8446, 5.1).
bool TlsTunnels::Tunnel::hears_plain() {
  char first = 0;
  if (heard_ || ::recv(tcp_.get(), &first, 1, MSG_PEEK | MSG_DONTWAIT) != 1) return false;
  heard_ = true;
  return first == FrameWriter(FrameType::kHello).bytes()[0];
}

void TlsTunnels::Tunnel::refuse(const std::string& reason) {
  refusal_ = fmt::format("{}: {}", peer_, reason);
  if (side_ == TlsSide::kClient) say(plain_.get(), refused(refusal_));
  lose();
}

void TlsTunnels::Tunnel::refuse_plain() {
  if (side_ == TlsSide::kClient)
    return refuse("this rank was given a key, and the other one talks without TLS");
  forget_unread();
  say(tcp_.get(), refused("the others talk TLS between hosts, and this rank was given no key"));
  refuse("it does not talk TLS: it was given no key");
}

void TlsTunnels::Tunnel::shake_hands() {
  if (hears_plain()) {
    if (side_ == TlsSide::kServer) return refuse_plain();
    state_ = State::kPlain;
    return;
  }
  if (SteadyClock::now() >= deadline_) return refuse("no TLS handshake in time");
  ::ERR_clear_error();
  const int result = SSL_do_handshake(ssl_.get());
  const int error = SSL_get_error(ssl_.get(), result);
  wants_write_ = error == SSL_ERROR_WANT_WRITE;
  if (result == 1) {
    // A certificate would have failed before; a handshake without the key must not pass either.
    if (SSL_session_reused(ssl_.get()) != 1) return refuse("it did not show that it has the key");
    state_ = State::kOpen;
    return;
  }
  if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) return;
  // What came since we looked OpenSSL has read, who finds no record of TLS in it.
  if (!heard_ && ERR_GET_REASON(::ERR_peek_error()) == SSL_R_WRONG_VERSION_NUMBER)
    return refuse_plain();
  bool is_end = false;
  const std::string reason = last_reason(&is_end);
  // It may have died, and come again.
  if (is_end) return lose();
  refuse(fmt::format("it has another key than this rank: TLS handshake: {}", reason));
}

TlsTunnels::Tunnel::Moved TlsTunnels::Tunnel::moved_of(int result) {
  switch (SSL_get_error(ssl_.get(), result)) {
    case SSL_ERROR_NONE:
      return Moved::kSome;
    case SSL_ERROR_WANT_READ:
      return Moved::kNothing;
    case SSL_ERROR_WANT_WRITE:
      wants_write_ = true;
      return Moved::kNothing;
    case SSL_ERROR_ZERO_RETURN:
      return Moved::kEnd;
    default:
      ::ERR_clear_error();
      return Moved::kLost;
  }
}

TlsTunnels::Tunnel::Moved TlsTunnels::Tunnel::read_tls(std::span<std::byte> into, size_t* count) {
  if (state_ == State::kPlain) {
    const ssize_t got = ::recv(tcp_.get(), into.data(), into.size(), MSG_DONTWAIT);
    if (got == 0) return Moved::kEnd;
    if (got < 0) return would_block(errno) ? Moved::kNothing : Moved::kEnd;
    *count = static_cast<size_t>(got);
    return Moved::kSome;
  }
  ::ERR_clear_error();
  return moved_of(SSL_read_ex(ssl_.get(), into.data(), into.size(), count));
}

void TlsTunnels::Tunnel::carry() {
  bool moved = true;
  while (moved && (state_ == State::kOpen || state_ == State::kPlain)) {
    wants_write_ = false;
    const bool in = carry_in();
    const bool out = carry_out();
    moved = in || out;
  }
}

// From the other side to ours.
bool TlsTunnels::Tunnel::carry_in() {
  bool moved = false;
  if (in_.empty() && !tls_ended_) {
    size_t count = 0;
    const Moved what = read_tls(in_.bytes, &count);
    if (what == Moved::kSome) {
      in_.begin = 0;
      in_.end = count;
      moved = true;
    }
    tls_ended_ = what == Moved::kEnd || what == Moved::kLost;
    if (what == Moved::kLost) lose();
  }
  if (!in_.empty()) {
    const auto left = in_.left();
    const ssize_t sent =
        ::send(plain_.get(), left.data(), left.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      in_.begin += static_cast<size_t>(sent);
      moved = true;
    } else if (sent < 0 && !would_block(errno)) {
      in_.begin = in_.end;  // our side has closed and reads no more
    }
  }
  if (tls_ended_ && in_.empty()) {
    ::shutdown(plain_.get(), SHUT_WR);
    if (state_ == State::kPlain) lose();
  }
  return moved;
}

// From our side to the other.
bool TlsTunnels::Tunnel::carry_out() {
  bool moved = false;
  if (out_.empty() && !plain_ended_) {
    const ssize_t got = ::recv(plain_.get(), out_.bytes.data(), out_.bytes.size(), MSG_DONTWAIT);
    if (got > 0) {
      out_.begin = 0;
      out_.end = static_cast<size_t>(got);
      moved = true;
    }
    plain_ended_ = got == 0 || (got < 0 && !would_block(errno));
  }
  // What was said to one that answers without TLS is for nobody.
  if (state_ == State::kPlain) {
    out_.begin = out_.end;
    return moved;
  }
  if (!out_.empty() && state_ == State::kOpen) {
    size_t count = 0;
    const auto left = out_.left();
    ::ERR_clear_error();
    const Moved what = moved_of(SSL_write_ex(ssl_.get(), left.data(), left.size(), &count));
    if (what == Moved::kSome) {
      out_.begin += count;
      moved = true;
    }
    if (what == Moved::kLost || what == Moved::kEnd) lose();
  }
  if (!plain_ended_ || !out_.empty() || state_ != State::kOpen) return moved;
  if (!std::exchange(told_end_, true)) {
    SSL_shutdown(ssl_.get());
    ::ERR_clear_error();
    ::shutdown(tcp_.get(), SHUT_WR);
  }
  pollfd ours{.fd = plain_.get(), .events = 0, .revents = 0};
  ::poll(&ours, 1, 0);
  // Both directions: it has closed, and does not only say no more.
  if (tls_ended_ || (ours.revents & POLLHUP) != 0) {
    state_ = State::kDraining;
    deadline_ = SteadyClock::now() + kDrainTimeout;
  }
  return moved;
}

// Closing with something unread would take back what is still on its way (RFC 1122, 4.2.2.13).
void TlsTunnels::Tunnel::forget_unread() {
  while (::recv(tcp_.get(), in_.bytes.data(), in_.bytes.size(), MSG_DONTWAIT) > 0) {
  }
}

void TlsTunnels::Tunnel::drain() {
  forget_unread();
  int unsent_bytes = 0;
  if (::ioctl(tcp_.get(), SIOCOUTQ, &unsent_bytes) != 0 || unsent_bytes == 0 ||
      SteadyClock::now() >= deadline_)
    lose();
}

}  // namespace yard::collective
