// Whose turn it is when hosts are taken. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace yard::jobs {

struct WaitingJob {
  int64_t id = 0;
  int priority = 0;
  std::string share;  // who it counts for
  double queued_t = 0;
  int host_count = 1;
};

// The ids in the order in which they get hosts: the higher priority first; among equals the share
// that has the fewest hosts, those counted that its earlier jobs in this order will get; within a
// share the one that waits longest. `hosts_by_share`: what they have now.
std::vector<int64_t> queue_order(const std::vector<WaitingJob>& waiting,
                                 std::map<std::string, int> hosts_by_share);

}  // namespace yard::jobs
