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
  // Ranks with the same identity share memory. Empty: the machine's boot id and IPC namespace.
  // Tests give different ones to have "hosts" on one machine.
  std::string host_identity;
};

// Blocks until all ranks are there. kDeadlineExceeded names the ranks that did not come;
// kInvalidArgument: port taken, rank given twice, world sizes differ; kCancelled: `stop`.
Result<std::unique_ptr<Group>> connect(const RendezvousOptions& options, const StopToken& stop);

// The address of this host from which it would talk to `host`: where that one can reach us.
// kInvalidArgument: no such name; kUnavailable: no route.
Result<std::string> address_towards(const std::string& host);

}  // namespace yard::collective
