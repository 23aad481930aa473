// RankNames: errors of a Group speak of its own ranks; who reads them wants the job's and the host.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "collective/collective.h"

namespace yard::process_group {

// Of the host of each rank. All ranks call it.
Result<std::vector<std::string>> host_names(collective::Group& group);

// Immutable.
class RankNames {
 public:
  RankNames() = default;
  // One per rank of the group; empty `global_ranks`: the group is the whole job.
  RankNames(std::vector<std::string> hosts, std::vector<int64_t> global_ranks);

  // "rank 1 (global rank 3, on alpha)".
  std::string name(int rank) const;
  // The text with the first mention of each rank, as in "rank 1 died", named in full. Ranks that
  // the group does not have stay as they are.
  std::string explain(std::string_view text) const;

 private:
  std::string more_about(size_t rank) const;

  std::vector<std::string> hosts_;
  std::vector<int64_t> global_ranks_;
};

}  // namespace yard::process_group
