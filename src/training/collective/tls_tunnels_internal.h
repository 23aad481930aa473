// TlsTunnels: TCP connections under TLS 1.3, authenticated by a key that all ranks have.
//
// The rest of the collectives knows plain sockets only. It gets one end of a socket pair; a thread
// carries the bytes between the other end and the connection. That costs a copy and two wake-ups
// besides the cipher, and leaves every wait, peek and close as it is without TLS.
#pragma once

#include <chrono>
#include <condition_variable>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "base/file.h"
#include "base/result.h"

struct ssl_ctx_st;

namespace yard::collective {

enum class TlsSide { kClient, kServer };

// Thread-safe.
class TlsTunnels {
 public:
  static constexpr size_t kKeyBytesMin = 16;
  static constexpr size_t kKeyBytesMax = 1024;

  // kInvalidArgument: a key of another length.
  static Result<std::shared_ptr<TlsTunnels>> create(const std::string& key);
  // What was written before still goes out, for at most two seconds.
  ~TlsTunnels();

  // Our end of the tunnel through `tcp`; does not wait for the handshake. Where that fails, our end
  // closes; a client reads a kRefused frame before, which names `peer` and says why.
  Result<UniqueFd> open(UniqueFd tcp, TlsSide side, const std::string& peer);

  // The last connection that was turned away, and why; empty: none.
  std::string last_refusal() const;

  struct Tunnel;

 private:
  explicit TlsTunnels(const std::string& key);
  void run();
  bool step(Tunnel& tunnel);
  void note_refusal(std::string text);

  struct FreeContext {
    void operator()(ssl_ctx_st* context) const;
  };
  std::string secret_;  // made of the key; OpenSSL's callbacks read it
  std::unique_ptr<ssl_ctx_st, FreeContext> client_;
  std::unique_ptr<ssl_ctx_st, FreeContext> server_;
  UniqueFd wake_;  // eventfd
  mutable std::mutex mutex_;
  std::list<std::unique_ptr<Tunnel>> new_;  // mutex_
  std::string last_refusal_;                // mutex_
  bool stopped_ = false;                    // mutex_
  std::thread thread_;
};

// `tcp` itself where there are no tunnels.
Result<UniqueFd> secured(TlsTunnels* tunnels, UniqueFd tcp, TlsSide side, const std::string& peer);

}  // namespace yard::collective
