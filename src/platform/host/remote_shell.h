// A command of one host of a job run on another, where they trust each other by the job's secret:
// what MPI's launcher needs ssh for. `yard remote-shell` is the agent and the other side.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>

#include "base/file.h"
#include "base/result.h"
#include "base/stop_token.h"

namespace yard::host {

inline constexpr uint16_t kRemoteShellPort = 7778;
inline constexpr size_t kRemoteCommandBytesMax = size_t{1} << 20;

// The hosts of a job have the same credentials and the same ARN; no two jobs have both.
// kInvalidArgument: there are no credentials.
Result<std::string> remote_shell_key(const std::map<std::string, std::string>& env);

// Waits for one caller that knows `key`, runs its command by /bin/sh with `env` and our standard
// output and error, and returns its exit code, which the caller is told. A caller that goes ends
// the command. Others are turned away. kCancelled: `stop`.
class RemoteShellServer {
 public:
  // `address` empty: of all interfaces; port 0: any that is free.
  static Result<RemoteShellServer> listen(const std::string& address, uint16_t port);
  uint16_t port() const { return port_; }
  Result<int> serve(const std::string& key, const std::map<std::string, std::string>& env,
                    const StopToken& stop);

 private:
  RemoteShellServer(UniqueFd listener, uint16_t port)
      : listener_(std::move(listener)), port_(port) {}
  UniqueFd listener_;
  uint16_t port_;
};

struct RemoteCommand {
  std::string host;
  uint16_t port = kRemoteShellPort;
  std::string key;
  std::string command;                    // for /bin/sh -c
  std::chrono::seconds connect_max{120};  // until the other host listens
};

// The exit code of the command there. kUnavailable: the host does not listen, does not take the
// key, or was lost.
//
Result<int> run_remotely(const RemoteCommand& remote, const StopToken& stop);

}  // namespace yard::host
