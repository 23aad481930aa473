// One tunnel of TlsTunnels: a TCP connection under TLS and our end of the socket pair before it.
#pragma once

#include <openssl/ssl.h>
#include <poll.h>

#include <array>
#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "collective/tls_tunnels_internal.h"

namespace yard::collective {

// For one thread. Never blocks.
struct TlsTunnels::Tunnel {
 public:
  struct Made {
    UniqueFd ours;  // what is written here goes out under TLS
    std::unique_ptr<Tunnel> tunnel;
  };
  static Result<Made> make(UniqueFd tcp, TlsSide side, const std::string& peer, SSL_CTX* context);

  // Moves what can be moved. False: over.
  bool step();
  void append_to(std::vector<pollfd>& polled) const;
  bool shakes_hands() const { return state_ == State::kHandshake; }
  // All is handed over, and has not yet arrived.
  bool is_draining() const { return state_ == State::kDraining; }
  // Why the handshake failed, once.
  std::string take_refusal() { return std::exchange(refusal_, {}); }

 private:
  enum class State {
    kHandshake,
    kOpen,
    kPlain,     // the other side answers without TLS: what it says is passed on as it is
    kDraining,  // our side has closed
    kOver,
  };
  enum class Moved { kSome, kNothing, kEnd, kLost };
  // Bytes on their way in one direction.
  struct Load {
    std::vector<std::byte> bytes;
    size_t begin = 0;
    size_t end = 0;
    bool empty() const { return begin == end; }
    std::span<std::byte> left() { return std::span(bytes).subspan(begin, end - begin); }
  };

  Tunnel() = default;
  bool hears_plain();
  void shake_hands();
  void refuse(const std::string& reason);
  void refuse_plain();
  void carry();
  bool carry_out();
  bool carry_in();
  Moved read_tls(std::span<std::byte> into, size_t* count);
  Moved moved_of(int result);
  void lose() { state_ = State::kOver; }
  void drain();
  void forget_unread();

  struct FreeSsl {
    void operator()(SSL* ssl) const { SSL_free(ssl); }
  };
  UniqueFd tcp_;
  UniqueFd plain_;
  std::unique_ptr<SSL, FreeSsl> ssl_;
  TlsSide side_ = TlsSide::kClient;
  std::string peer_;
  std::string refusal_;
  State state_ = State::kHandshake;
  std::chrono::steady_clock::time_point deadline_;  // of the handshake, or of draining
  bool heard_ = false;                              // the other side has said something
  Load out_;
  Load in_;
  bool plain_ended_ = false;  // nothing more comes from our side
  bool tls_ended_ = false;    // nor from the other
  bool told_end_ = false;     // the other side knows
  bool wants_write_ = false;  // TLS waits for room
};

}  // namespace yard::collective
