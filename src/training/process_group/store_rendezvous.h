// How the ranks of a torch process group find each other: rank 0 says in the group's store where
// it listens, the others read it there.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "base/result.h"
#include "base/stop_token.h"
#include "collective/collective.h"
#include "collective/rendezvous.h"

namespace yard::process_group {

struct StorePlace {
  int rank = 0;
  int world_size = 1;
  // Of rank 0: where the others reach it.
  std::string address = "127.0.0.1";
  // How often the job was restarted. A process of an older attempt can never join.
  uint64_t generation = 0;
  // To find each other, and of each operation.
  std::chrono::milliseconds timeout{600'000};
  // File of the flight recorder (collective/flight.h). Empty: only in memory.
  std::string flight_path;
  // How f32 values travel between hosts; the same on all ranks.
  collective::WireForm wire = collective::WireForm::kExact;
  // Ranks with the same identity share memory. Empty: the machine's.
  std::string host_identity;
  // What travels between hosts is encrypted by it where it is not empty (collective/rendezvous.h).
  std::string tls_key;
  // Connections over which a large message goes to another host, likewise; 0: as measured.
  int streams = 0;
};

struct Connection {
  std::unique_ptr<collective::Group> group;
  std::string id;  // the same on all ranks, another for each group; a secret of theirs
};

// Blocks until all ranks are there. Groups that are made at the same time need stores of their own,
// as c10d's PrefixStore makes them; one after the other they may use the same one.
// kDeadlineExceeded names the ranks that did not come; kInvalidArgument: this process is of an
// older attempt; kCancelled: `stop`; kUnavailable: the store failed.
Result<Connection> connect_through(const c10::intrusive_ptr<c10d::Store>& store,
                                   const StorePlace& place, const StopToken& stop);

}  // namespace yard::process_group
