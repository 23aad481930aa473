// Sockets as the collectives need them: non-blocking, closed on exec, every wait bounded.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/file.h"
#include "base/result.h"
#include "base/stop_token.h"
#include "collective/failure_internal.h"
#include "collective/frame_internal.h"
#include "collective/tls_tunnels_internal.h"

namespace yard::collective {

// What may end a wait besides that which is waited for.
struct Patience {
  std::chrono::steady_clock::time_point deadline;
  StopToken stop;              // -> kCancelled
  Failure* failure = nullptr;  // -> its Error
};

// Waits until `events` (POLLIN, POLLOUT) or a hang-up is there on `fd`. kDeadlineExceeded,
// kCancelled or the failure's Error otherwise.
Status wait_for_events(int fd, short events, const Patience& patience);

// `address` is a name or number. kInvalidArgument: port taken or address not of this host. Port 0:
// the kernel chooses, see local_port().
Result<UniqueFd> listen_tcp(const std::string& address, uint16_t port);
// kUnavailable: refused (if wanted, it is told which) or unreachable. Not retried here.
Result<UniqueFd> connect_tcp(const std::string& address, uint16_t port, const Patience& patience,
                             bool* is_refused = nullptr);
uint16_t local_port(int fd);
std::string local_address(int fd);  // numeric, without port
std::string peer_address(int fd);
// Small messages leave at once; a host that vanished without a word is noticed in about 11 s.
void set_tcp_options(int fd);

// In the abstract namespace: no file is left behind, whatever happens.
Result<UniqueFd> listen_abstract(const std::string& name);
Result<UniqueFd> connect_abstract(const std::string& name, const Patience& patience);

Result<UniqueFd> accept_connection(int listener, const Patience& patience);

// Whoever connects says first whom he is, a kNeighbour frame, and which of how many connections of
// one kind this is.
struct NeighbourName {
  int rank = 0;
  uint8_t stream = 0;
  uint8_t stream_count = 1;
};
std::string neighbour_hello(const std::string& session, const NeighbourName& name);
// nullopt: not of this session.
std::optional<NeighbourName> name_of_neighbour(const Frame& frame, const std::string& session);
struct Neighbour {
  NeighbourName name;
  UniqueFd fd;
};
enum class Door { kTcp, kUnix };
// The next that connects to `listener` and is of this session. Strangers are turned away, after
// five seconds if they say nothing; at a unix socket other users at once. TCP goes through
// `tunnels` unless null.
Result<Neighbour> accept_neighbour(int listener, Door door, const std::string& session,
                                   TlsTunnels* tunnels, const Patience& patience);

// What a read or write that should be tried again later says.
bool would_block(int error);

inline constexpr std::chrono::seconds kHelloTimeout{5};
// A connection closes a moment before the word of why it did arrives over the control connections:
// two hops, each through a thread that a busy machine may keep waiting. Only what closes without a
// word (a rank that left in peace while we wait for it, a connection that was cut) takes so long.
inline constexpr std::chrono::seconds kCauseGrace{2};

Status send_all(int fd, std::string_view bytes, const Patience& patience);
Result<Frame> receive_frame(int fd, FrameReader& reader, const Patience& patience);

// Hands a descriptor over a unix socket.
Status send_descriptor(int socket, int fd, const Patience& patience);
Result<UniqueFd> receive_descriptor(int socket, const Patience& patience);

struct PeerProcess {
  int pid = 0;  // 0: not visible from our pid namespace
  uint32_t uid = 0;
};
PeerProcess peer_process(int unix_socket);
// Becomes readable when the process ends; invalid when there is no such process.
UniqueFd open_pidfd(int pid);

}  // namespace yard::collective
