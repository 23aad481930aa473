#include "endpoint.h"

#include <fmt/format.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <memory>

#include "base/file.h"

namespace yard::app {
namespace {

constexpr std::chrono::seconds kStartWait{10};   // for one that was started just before
constexpr std::chrono::seconds kRestartWait{5};  // where one has served before
constexpr std::chrono::milliseconds kStartPoll{20};
constexpr std::chrono::milliseconds kConnectWait{1000};

bool connects(const addrinfo& address) {
  const UniqueFd socket(::socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return false;
  if (::connect(socket.get(), address.ai_addr, address.ai_addrlen) == 0) return true;
  if (errno != EINPROGRESS) return false;
  pollfd waiting{.fd = socket.get(), .events = POLLOUT};
  int failed = 0;
  socklen_t size = sizeof failed;
  return ::poll(&waiting, 1, int(kConnectWait.count())) == 1 &&
         ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &failed, &size) == 0 && failed == 0;
}

}  // namespace

Result<HostPort> parse_listen(const std::string& text) {
  const size_t colon = text.rfind(':');
  const std::string digits = colon == text.npos ? "" : text.substr(colon + 1);
  const bool is_number = !digits.empty() && digits.find_first_not_of("0123456789") == digits.npos;
  if (!is_number) return Error{Code::kInvalidArgument, "--listen '" + text + "': not HOST:PORT"};
  if (digits.size() > 5 || std::stoul(digits) > 65535)
    return Error{Code::kInvalidArgument,
                 "--listen '" + text + "': a port is a number from 0 to 65535"};
  std::string host = text.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  return HostPort{host, uint16_t(std::stoul(digits))};
}

bool is_listening(const std::string& url) {
  const size_t scheme = url.find("//");
  if (scheme == url.npos) return false;
  const std::string authority = url.substr(scheme + 2);
  const auto address = parse_listen(authority.substr(0, authority.find('/')));
  if (!address) return false;
  const addrinfo hints{.ai_flags = AI_NUMERICSERV, .ai_socktype = SOCK_STREAM};
  addrinfo* found = nullptr;
  const std::string port = std::to_string(address->port);
  if (::getaddrinfo(address->host.c_str(), port.c_str(), &hints, &found) != 0) return false;
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, &::freeaddrinfo);
  for (; found != nullptr; found = found->ai_next)
    if (connects(*found)) return true;
  return false;
}

std::string shell_quoted(std::string_view text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

Result<std::string> wait_for_server(const std::string& path,
                                    const std::function<std::string(const std::string&)>& url_of,
                                    const std::string& remedy, const StopToken& stop) {
  const auto start = std::chrono::steady_clock::now();
  for (;;) {
    auto text = read_file(path);
    if (!text && text.error().code != Code::kNotFound) return text;
    const std::string url = text ? url_of(*text) : "";
    if (text && is_listening(url)) return text;
    const auto waited = std::chrono::steady_clock::now() - start;
    if (waited < (text ? kRestartWait : kStartWait) && !stop.wait_for(kStartPoll)) continue;
    if (!text) return text;
    return Error{Code::kUnavailable, fmt::format("nobody answers at {}; {}", url, remedy)};
  }
}

}  // namespace yard::app
