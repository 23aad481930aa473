#include "host/remote_shell.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <span>

#include "base/log.h"
#include "base/subprocess.h"
#include "net/signing_key.h"

namespace yard::host {
namespace {

using std::chrono::milliseconds;

constexpr size_t kNonceBytes = 32;
constexpr milliseconds kRetryPause{50};
constexpr timeval kTalkTimeout = {.tv_sec = 10, .tv_usec = 0};

using Proof = std::array<std::byte, 32>;

Proof prove(const std::string& key, std::string_view nonce) {
  return hmac_sha256(std::as_bytes(std::span(key)), nonce);
}

// In a time that does not depend on where they differ.
bool are_equal(const Proof& a, const Proof& b) {
  std::byte difference{0};
  for (size_t i = 0; i < a.size(); ++i) difference |= a[i] ^ b[i];
  return difference == std::byte{0};
}

Status send_bytes(int fd, const void* data, size_t size) {
  const char* at = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t put = ::send(fd, at, size, MSG_NOSIGNAL);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return Error{Code::kUnavailable, "the connection was lost"};
    at += put;
    size -= size_t(put);
  }
  return Ok{};
}

Status receive_bytes(int fd, void* data, size_t size) {
  char* at = static_cast<char*>(data);
  while (size > 0) {
    const ssize_t got = ::recv(fd, at, size, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return Error{Code::kUnavailable, "the connection was lost"};
    at += got;
    size -= size_t(got);
  }
  return Ok{};
}

void limit_waiting(int fd) {
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &kTalkTimeout, sizeof kTalkTimeout);
  ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &kTalkTimeout, sizeof kTalkTimeout);
}

// The command of a caller that has shown that it knows the key.
Result<std::string> hear_caller(int fd, const std::string& key) {
  limit_waiting(fd);
  std::string nonce(kNonceBytes, '\0');
  if (::getrandom(nonce.data(), nonce.size(), 0) != ssize_t(nonce.size()))
    return errno_error("getrandom", errno);
  YARD_TRY(send_bytes(fd, nonce.data(), nonce.size()));
  Proof shown{};
  uint32_t size_bytes = 0;
  YARD_TRY(receive_bytes(fd, shown.data(), shown.size()));
  if (!are_equal(shown, prove(key, nonce)))
    return Error{Code::kInvalidArgument, "a caller that does not know the job's secret"};
  YARD_TRY(receive_bytes(fd, &size_bytes, sizeof size_bytes));
  if (size_bytes > kRemoteCommandBytesMax)
    return Error{Code::kInvalidArgument, fmt::format("a command of {} bytes", size_bytes)};
  std::string command(size_bytes, '\0');
  YARD_TRY(receive_bytes(fd, command.data(), command.size()));
  return command;
}

// Until the child ends, the caller goes, or `stop`; the latter two end the child.
Result<int> attend(Subprocess& child, int caller, const StopToken& stop) {
  std::array<pollfd, 3> items = {{{.fd = child.pidfd(), .events = POLLIN, .revents = 0},
                                  {.fd = caller, .events = POLLIN, .revents = 0},
                                  {.fd = stop.fd(), .events = POLLIN, .revents = 0}}};
  while (::poll(items.data(), items.size(), -1) < 0 && errno == EINTR) {
  }
  if (items[0].revents == 0) {
    (void)child.kill_group(SIGTERM);
    if (!child.wait(std::chrono::seconds(5))) (void)child.kill_group(SIGKILL);
  }
  if (items[2].revents != 0) return Error{Code::kCancelled, "stopped"};
  YARD_ASSIGN(const ExitStatus exit, child.wait(std::chrono::seconds(10)));
  return exit.code;
}

struct FreeAddresses {
  void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};

Result<UniqueFd> connect_once(const std::string& host, uint16_t port) {
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* raw = nullptr;
  if (const int failed = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &raw);
      failed != 0)
    return Error{Code::kUnavailable, fmt::format("{}: {}", host, ::gai_strerror(failed))};
  const std::unique_ptr<addrinfo, FreeAddresses> list(raw);
  for (const addrinfo* each = raw; each != nullptr; each = each->ai_next) {
    UniqueFd fd(::socket(each->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (fd.valid() && ::connect(fd.get(), each->ai_addr, each->ai_addrlen) == 0) return fd;
  }
  return Error{Code::kUnavailable, fmt::format("{}:{}: {}", host, port, std::strerror(errno))};
}

Result<UniqueFd> connect_patiently(const RemoteCommand& remote, const StopToken& stop) {
  const auto end = std::chrono::steady_clock::now() + remote.connect_max;
  while (true) {
    auto fd = connect_once(remote.host, remote.port);
    if (fd || std::chrono::steady_clock::now() >= end) return fd;
    if (stop.wait_for(kRetryPause)) return Error{Code::kCancelled, "stopped"};
  }
}

}  // namespace

Result<std::string> remote_shell_key(const std::map<std::string, std::string>& env) {
  const auto secret = env.find("AWS_SECRET_ACCESS_KEY");
  const auto arn = env.find("TRAINING_JOB_ARN");
  if (secret == env.end() || secret->second.empty() || arn == env.end())
    return Error{Code::kInvalidArgument,
                 "hosts trust each other by the job's credentials, and there are none"};
  const Proof key = prove(secret->second, "remote-shell " + arn->second);
  return std::string(reinterpret_cast<const char*>(key.data()), key.size());
}

Result<RemoteShellServer> RemoteShellServer::listen(const std::string& address, uint16_t port) {
  addrinfo hints = {};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* raw = nullptr;
  const std::string service = std::to_string(port);
  if (::getaddrinfo(address.empty() ? nullptr : address.c_str(), service.c_str(), &hints, &raw) !=
      0)
    return Error{Code::kInvalidArgument, address + ": no address"};
  const std::unique_ptr<addrinfo, FreeAddresses> list(raw);
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return errno_error("socket", errno);
  const int yes = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_in bound = {};
  socklen_t size = sizeof bound;
  if (::bind(fd.get(), raw->ai_addr, raw->ai_addrlen) != 0 || ::listen(fd.get(), 16) != 0 ||
      ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&bound), &size) != 0)
    return errno_error("port " + service, errno);
  return RemoteShellServer(std::move(fd), ntohs(bound.sin_port));
}

Result<int> RemoteShellServer::serve(const std::string& key,
                                     const std::map<std::string, std::string>& env,
                                     const StopToken& stop) {
  while (true) {
    std::array<pollfd, 2> items = {{{.fd = listener_.get(), .events = POLLIN, .revents = 0},
                                    {.fd = stop.fd(), .events = POLLIN, .revents = 0}}};
    (void)::poll(items.data(), items.size(), -1);
    if (stop.stopped()) return Error{Code::kCancelled, "stopped"};
    const UniqueFd caller(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!caller.valid()) continue;
    const auto command = hear_caller(caller.get(), key);
    if (!command) {
      log_warning("turned away: {}", command.error().message);
      continue;
    }
    SubprocessOptions options;
    options.argv = {"/bin/sh", "-c", *command};
    options.env = env;
    options.kill_with_parent = true;
    YARD_ASSIGN(Subprocess child, Subprocess::spawn(options));
    YARD_ASSIGN(const int code, attend(child, caller.get(), stop));
    const auto told = static_cast<uint8_t>(code);
    (void)send_bytes(caller.get(), &told, sizeof told);
    return code;
  }
}

Result<int> run_remotely(const RemoteCommand& remote, const StopToken& stop) {
  YARD_ASSIGN(const UniqueFd fd, connect_patiently(remote, stop));
  limit_waiting(fd.get());
  std::string nonce(kNonceBytes, '\0');
  YARD_TRY(receive_bytes(fd.get(), nonce.data(), nonce.size()));
  const Proof proof = prove(remote.key, nonce);
  const auto size_bytes = static_cast<uint32_t>(remote.command.size());
  YARD_TRY(send_bytes(fd.get(), proof.data(), proof.size()));
  YARD_TRY(send_bytes(fd.get(), &size_bytes, sizeof size_bytes));
  YARD_TRY(send_bytes(fd.get(), remote.command.data(), remote.command.size()));
  std::array<pollfd, 2> items = {{{.fd = fd.get(), .events = POLLIN, .revents = 0},
                                  {.fd = stop.fd(), .events = POLLIN, .revents = 0}}};
  while (::poll(items.data(), items.size(), -1) < 0 && errno == EINTR) {
  }
  if (items[1].revents != 0) return Error{Code::kCancelled, "stopped"};
  uint8_t code = 0;
  if (const Status told = receive_bytes(fd.get(), &code, sizeof code); !told)
    return Error{Code::kUnavailable, fmt::format("{}: turned us away, or was lost", remote.host)};
  return int{code};
}

}  // namespace yard::host
