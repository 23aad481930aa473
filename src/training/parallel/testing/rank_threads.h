// Ranks as threads or processes, for tests: each has its groups, and may count the memory of its
// tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "collective/collective.h"
#include "parallel/data_parallel.h"

namespace yard::parallel::testing {

// How a test's ranks are grouped: `shard_size` neighbours share the model out.
struct RankGrid {
  int world_size = 1;
  int shard_size = 1;
  Sharding sharding = Sharding::kNone;
};
std::string to_string(const RankGrid& grid);

struct RankPlaces {
  int rank = 0;
  ParallelGroups groups;
};

// Runs `body` on every rank of the grid and waits for all. A rank whose groups cannot be made fails
// the test.
void on_grid(const RankGrid& grid, const std::function<void(const RankPlaces&)>& body);

// Likewise with a process for each rank, forked from this one, which must have no other threads.
// `body` gives the exit status. Returns what waitpid() says of each, by rank.
std::vector<int> on_forked_grid(const RankGrid& grid,
                                const std::function<int(const RankPlaces&)>& body);

// A value that depends on the index and on `seed`, in [-1, 1].
at::Tensor wave(at::IntArrayRef shape, int seed);

// Bytes of tensors that this thread has allocated, now and at most, while it lives.
class TensorMemory {
 public:
  TensorMemory();
  ~TensorMemory();
  TensorMemory(const TensorMemory&) = delete;
  TensorMemory& operator=(const TensorMemory&) = delete;
  int64_t now_bytes() const;
  int64_t most_bytes() const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace yard::parallel::testing
