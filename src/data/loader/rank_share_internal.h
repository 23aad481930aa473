// RankShare: which samples of each global batch are a rank's, and in what order.
//
// The samples of a global batch are drawn from all of the shuffle's window. Shared out as drawn,
// each rank would need one sample here and one there of every stretch of every shard, and each by a
// request of its own. So the ranks share a batch in the order of the data set: a rank's samples of
// a window are then neighbours for the most part, which one request brings. What a global batch
// consists of is untouched, and its order is the same for any number of ranks.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "loader/loader.h"
#include "shards/sample_plan.h"

namespace yard::loader {

// Thread-safe.
class RankShare {
 public:
  // `plan` must outlive it.
  RankShare(const shards::SamplePlan& plan, const LoaderOptions& options);

  uint64_t size() const { return size_; }
  // Of this rank: places in the plan's batch, size() of them.
  using Places = std::shared_ptr<const std::vector<uint64_t>>;
  Places places(const LoaderState& position) const;

  // Counting this rank's samples over an epoch: where the window ends that the one at `number` lies
  // in. nullopt: its samples of a window are no neighbours.
  std::optional<uint64_t> window_end(uint64_t number) const;

 private:
  std::vector<uint64_t> find_places(const LoaderState& position) const;

  const shards::SamplePlan& plan_;
  const uint64_t size_;
  const uint64_t batch_size_;  // of the plan
  const uint64_t first_;       // place of this rank
  const bool is_ordered_;
  const bool has_windows_;
  // The latest ones: who reads ahead and who decodes ask for the same.
  struct Known {
    LoaderState position;
    Places places;
  };
  mutable std::mutex mutex_;
  mutable std::deque<Known> known_;
};

}  // namespace yard::loader
