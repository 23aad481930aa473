// How the ranks of a job find each other and become a Group.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "base/stop_token.h"
#include "collective/collective.h"

namespace yard::collective {

// How buffers are reduced between hosts: see collective/host_algorithms_internal.h.
enum class BetweenHosts : uint8_t { kAuto, kRing, kDoubling, kHalvingDoubling };
// How f32 values that are summed or averaged travel between hosts.
enum class WireForm : uint8_t { kExact, kBF16 };

struct RendezvousOptions {
  int rank = 0;        // RANK
  int world_size = 1;  // WORLD_SIZE, at most 4096
  // Rank 0 listens here, the others connect. MASTER_ADDR, MASTER_PORT.
  std::string master_address = "127.0.0.1";
  uint16_t master_port = 0;
  // For rank 0 with port 0: the kernel chooses the port, which is told here, so that the others can
  // learn it from a store. An Error ends connect().
  std::function<Status(uint16_t port)> announce;
  // Names the run and its restart count; a process of another run or of an older generation is
  // turned away: it can never join.
  std::string run_id;
  uint64_t generation = 0;
  std::chrono::milliseconds connect_timeout{60'000};
  // An operation for which a *living* peer lets us wait longer than this is an Error.
  std::chrono::milliseconds operation_timeout{600'000};
  // File of the flight recorder, see collective/flight.h; its folder must exist. Empty: only in
  // memory.
  std::string flight_path;
  // The same on all ranks. kAuto: by the size and the latency and bandwidth measured at the start.
  BetweenHosts between_hosts = BetweenHosts::kAuto;
  // Likewise. kBF16 halves the bytes and rounds: a relative error of up to 2^-9 for each of the
  // log2(hosts) to hosts - 1 times that a partial sum travels.
  WireForm f32_between_hosts = WireForm::kExact;
  // Ranks with the same identity share memory. Empty: the machine's boot id and IPC namespace.
  // Tests give different ones to have "hosts" on one machine.
  std::string host_identity;
  // Connections over which a large message goes from one host to another, 1 to 16; the same on all
  // ranks. 0: 1, 2 or 4, whatever is the fastest at the start.
  int streams_between_hosts = 0;
  // What travels between hosts is encrypted and authenticated by it (TLS 1.3), where it is not
  // empty: a secret of 16 to 1024 bytes, the same on all ranks. Within a host nothing leaves the
  // machine's memory.
  std::string tls_key;
  // Of this host, at most 64 bytes, for errors: "rank 3 (on node7) died". Empty: they name the rank
  // alone.
  std::string host_name;
};

// The `tls_key` that a file holds; white space around it does not count. kInvalidArgument: others
// than the owner may read or write the file, or the key is too short or too long.
Result<std::string> read_tls_key(const std::string& path);

// Blocks until all ranks are there. kDeadlineExceeded names the ranks that did not come;
// kInvalidArgument: port taken, rank given twice, world sizes differ; kCancelled: `stop`.
Result<std::unique_ptr<Group>> connect(const RendezvousOptions& options, const StopToken& stop);

// The address of this host from which it would talk to `host`: where that one can reach us.
// kInvalidArgument: no such name; kUnavailable: no route.
Result<std::string> address_towards(const std::string& host);
// A port of 127.0.0.1 that nobody listens on right now.
Result<uint16_t> free_loopback_port();

}  // namespace yard::collective
