// Is the network between these ranks right, and fast everywhere? For health checks before a job.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "collective/collective.h"

namespace yard::collective {

struct CheckOptions {
  size_t size_bytes = size_t{8} << 20;  // of a message by which bandwidth is measured
  int round_count = 5;                  // of each pair; the best counts
  size_t element_count = 100'003;       // of the largest buffers whose answers are compared
  double slow_share = 0.5;              // slower than this share of the median is named
};

struct PairFigures {
  int a = 0;  // a < b
  int b = 0;
  double latency_us = 0;        // of a small message, there and back, halved
  double bytes_per_second = 0;  // of a large one
};

struct CheckReport {
  int size = 0;
  int operation_count = 0;  // that were tried, all with the right answer
  std::vector<PairFigures> pairs;
  double all_reduce_bytes_per_second = 0;  // buffer size by time
  std::vector<std::string> hosts;          // by rank
  std::vector<std::string> warnings;       // slow ranks and links, by name
};

// Collective. Every operation over types, reductions and sizes against what it must give; then each
// pair's latency and bandwidth, the pairs of a round at the same time. kCorrupt: a wrong answer;
// the error names operation, rank and host. The report is rank 0's; the others' has no pairs.
Result<CheckReport> check_collectives(Group& group, const std::string& host_name,
                                      const CheckOptions& options);

// For each of size - 1 (even) or size (odd) rounds, the disjoint pairs of ranks; all pairs in the
// end (the circle method). Pure.
std::vector<std::vector<std::pair<int, int>>> pair_rounds(int size);

// A rank whose links are all slow is named once, with its host; else each slow link. Pure.
std::vector<std::string> find_slow(const std::vector<PairFigures>& pairs,
                                   const std::vector<std::string>& hosts, double slow_share);

}  // namespace yard::collective
