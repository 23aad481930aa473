#include "collective/tls_tunnels_internal.h"

#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/log.h"
#include "collective/frame_internal.h"
#include "collective/socket_internal.h"
#include "collective/tls_tunnel_internal.h"

namespace yard::collective {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr std::chrono::seconds kLinger{2};
constexpr int kDrainStepMs = 5;
constexpr int kHandshakeStepMs = 500;
constexpr const char* kIdentity = "trainyard";
// The ones whose hash is SHA-256, as keys without a session of their own need (RFC 8446, 4.2.11).
constexpr const char* kCiphers = "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256";

std::string hash_of(const std::string& key) {
  const std::string text = "trainyard collective 1:" + key;
  std::string secret(EVP_MAX_MD_SIZE, '\0');
  unsigned size_bytes = 0;
  YARD_CHECK(EVP_Digest(text.data(), text.size(), reinterpret_cast<unsigned char*>(secret.data()),
                        &size_bytes, EVP_sha256(), nullptr) == 1);
  secret.resize(size_bytes);
  return secret;
}

const std::string& secret_of(SSL* ssl) {
  return *static_cast<const std::string*>(SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl)));
}

unsigned copy_secret(SSL* ssl, unsigned char* to, unsigned size_max) {
  const std::string& secret = secret_of(ssl);
  if (secret.size() > size_max) return 0;
  std::memcpy(to, secret.data(), secret.size());
  return static_cast<unsigned>(secret.size());
}

unsigned give_client_key(SSL* ssl, const char*, char* identity, unsigned identity_max,
                         unsigned char* key, unsigned key_max) {
  if (std::strlen(kIdentity) + 1 > identity_max) return 0;
  std::strcpy(identity, kIdentity);
  return copy_secret(ssl, key, key_max);
}

unsigned give_server_key(SSL* ssl, const char* identity, unsigned char* key, unsigned key_max) {
  return std::strcmp(identity, kIdentity) == 0 ? copy_secret(ssl, key, key_max) : 0;
}

SSL_CTX* context_of(const SSL_METHOD* method, bool asks, std::string* secret) {
  SSL_CTX* context = SSL_CTX_new(method);
  YARD_CHECK(context != nullptr);
  SSL_CTX_set_app_data(context, secret);
  YARD_CHECK(SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) == 1);
  YARD_CHECK(SSL_CTX_set_ciphersuites(context, kCiphers) == 1);
  SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_num_tickets(context, 0);
  SSL_CTX_set_psk_client_callback(context, give_client_key);
  SSL_CTX_set_psk_server_callback(context, give_server_key);
  // With the key nobody shows a certificate; without it, none is good. A server has none to show,
  // and asks for none: that would tie the key to one context.
  SSL_CTX_set_verify(context, asks ? SSL_VERIFY_PEER : SSL_VERIFY_NONE, nullptr);
  return context;
}

}  // namespace

void TlsTunnels::FreeContext::operator()(ssl_ctx_st* context) const {
  SSL_CTX_free(context);
}

Result<std::shared_ptr<TlsTunnels>> TlsTunnels::create(const std::string& key) {
  if (key.size() < kKeyBytesMin || key.size() > kKeyBytesMax)
    return Error{Code::kInvalidArgument,
                 fmt::format("the key between hosts has {} bytes, not {} to {}", key.size(),
                             kKeyBytesMin, kKeyBytesMax)};
  return std::shared_ptr<TlsTunnels>(new TlsTunnels(key));
}

TlsTunnels::TlsTunnels(const std::string& key)
    : secret_(hash_of(key)),
      client_(context_of(TLS_client_method(), true, &secret_)),
      server_(context_of(TLS_server_method(), false, &secret_)),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  YARD_CHECK(wake_.valid());
  thread_ = std::thread([this] {
    // OpenSSL writes without MSG_NOSIGNAL.
    sigset_t pipe_signal;
    sigemptyset(&pipe_signal);
    sigaddset(&pipe_signal, SIGPIPE);
    ::pthread_sigmask(SIG_BLOCK, &pipe_signal, nullptr);
    try {
      run();
    } catch (const std::exception& e) {
      // All tunnels close, which every reader sees.
      log_error("collective: carrying bytes between hosts: {}", e.what());
    }
  });
}

TlsTunnels::~TlsTunnels() {
  {
    std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_.get(), &one, sizeof one);
  thread_.join();
}

Result<UniqueFd> TlsTunnels::open(UniqueFd tcp, TlsSide side, const std::string& peer) {
  SSL_CTX* context = side == TlsSide::kClient ? client_.get() : server_.get();
  YARD_ASSIGN(Tunnel::Made made, Tunnel::make(std::move(tcp), side, peer, context));
  std::lock_guard lock(mutex_);
  new_.push_back(std::move(made.tunnel));
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_.get(), &one, sizeof one);
  return std::move(made.ours);
}

std::string TlsTunnels::last_refusal() const {
  std::lock_guard lock(mutex_);
  return last_refusal_;
}

void TlsTunnels::note_refusal(std::string text) {
  log_warning("collective: turned away {}", text);
  std::lock_guard lock(mutex_);
  last_refusal_ = std::move(text);
}

void TlsTunnels::run() {
  std::list<std::unique_ptr<Tunnel>> tunnels;
  auto until = SteadyClock::time_point::max();
  std::vector<pollfd> polled;
  while (true) {
    {
      std::lock_guard lock(mutex_);
      uint64_t count = 0;
      [[maybe_unused]] const ssize_t got = ::read(wake_.get(), &count, sizeof count);
      tunnels.splice(tunnels.end(), new_);
      if (stopped_) until = std::min(until, SteadyClock::now() + kLinger);
    }
    std::erase_if(tunnels, [&](const auto& tunnel) { return !step(*tunnel); });
    const bool is_ending = until != SteadyClock::time_point::max();
    if (is_ending && (tunnels.empty() || SteadyClock::now() >= until)) return;
    polled.assign(1, {.fd = wake_.get(), .events = POLLIN, .revents = 0});
    int timeout_ms = is_ending ? kDrainStepMs : -1;
    for (const auto& tunnel : tunnels) {
      tunnel->append_to(polled);
      if (tunnel->is_draining()) timeout_ms = kDrainStepMs;
      if (tunnel->shakes_hands() && timeout_ms < 0) timeout_ms = kHandshakeStepMs;
    }
    ::poll(polled.data(), polled.size(), timeout_ms);
  }
}

bool TlsTunnels::step(Tunnel& tunnel) {
  const bool goes_on = tunnel.step();
  if (auto refusal = tunnel.take_refusal(); !refusal.empty()) note_refusal(std::move(refusal));
  return goes_on;
}

Result<UniqueFd> secured(TlsTunnels* tunnels, UniqueFd tcp, TlsSide side, const std::string& peer) {
  if (tunnels == nullptr) return tcp;
  return tunnels->open(std::move(tcp), side, peer);
}

}  // namespace yard::collective
