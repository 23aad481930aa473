// Where a server of ours listens, and how the shells of its clients learn of it.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/stop_token.h"

namespace yard::app {

struct HostPort {
  std::string host;
  uint16_t port = 0;
};

// "127.0.0.1:9000", "[::1]:9000"; ":9000" means all interfaces.
Result<HostPort> parse_listen(const std::string& text);

// Whether anybody listens at "http://HOST:PORT".
bool is_listening(const std::string& url);

// In single quotes for a shell.
std::string shell_quoted(std::string_view text);

// The text of `path`, whose first line is, or names, a URL (`url_of`) where somebody listens. Waits
// a moment for a server that was started just before and has not said it yet, or that is started
// again. kNotFound: it never said; kUnavailable: nobody answers, `remedy` says how to start one.
Result<std::string> wait_for_server(const std::string& path,
                                    const std::function<std::string(const std::string&)>& url_of,
                                    const std::string& remedy, const StopToken& stop);

}  // namespace yard::app
