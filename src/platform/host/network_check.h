// Whether the hosts of a job reach each other well enough: a check by the collective library over
// the network that the job will have. `yard host-network` runs it in the sandbox of each host.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "base/stop_token.h"
#include "collective/check.h"
#include "jobs/host_plan.h"

namespace yard::host {

struct NetworkCheckOptions {
  std::vector<std::string> hosts;  // of the job, by rank; the first is where all meet
  int rank = 0;
  uint16_t port = 0;
  std::string run_id;                // the same on all
  double bytes_per_second_min = 0;   // between a host and the best of its peers
  std::chrono::seconds timeout{30};  // of the meeting, and of an operation
  std::string master_address = {};   // empty: hosts[0]
  size_t message_bytes = size_t{4} << 20;
};

struct NetworkVerdict {
  bool is_good = false;
  std::vector<std::string> faulty;  // hosts; may be empty where it is not known who is at fault
  bool is_alone = false;            // no other host came to the first one
  double bytes_per_second = 0;      // of the slowest host; known to rank 0
  std::string error;
};

// Every operation's answer, then the bandwidth of every pair. Blocks until all hosts came or
// `timeout` passed. A host that does not reach the first one is at fault itself.
NetworkVerdict check_network(const NetworkCheckOptions& options, const StopToken& stop);

// Hosts none of whose links reaches the floor. Pure.
std::vector<std::string> hosts_below(const std::vector<collective::PairFigures>& pairs,
                                     const std::vector<std::string>& hosts,
                                     double bytes_per_second_min);

Json to_json(const NetworkVerdict& verdict);
Result<NetworkVerdict> network_verdict_from_json(const Json& json, std::string_view what);

// The arguments of `yard host-network` for the host of this plan.
std::vector<std::string> network_check_command(const jobs::HostPlan& plan,
                                               const std::string& yard_program);

}  // namespace yard::host
