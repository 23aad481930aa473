// TrainingGroups: which ranks share a stage's model out, and which hold copies, by the recipe.
#pragma once

#include <memory>

#include "base/result.h"
#include "collective/collective.h"
#include "loop/recipe.h"
#include "parallel/data_parallel.h"

namespace yard::loop {

// Whether no rank holds the trained parameters whole.
bool shards_parameters(const ParallelRecipe& recipe);

class TrainingGroups {
 public:
  // `world` must outlive it. Collective. kInvalidArgument: a shard_size that does not divide the
  // ranks; the message says what would.
  static Result<std::unique_ptr<TrainingGroups>> create(const ParallelRecipe& recipe,
                                                        collective::Group& world);

  const parallel::ParallelGroups& of_trainee() const { return groups_; }

 private:
  TrainingGroups() = default;
  Status connect_hybrid(int64_t shard_size, collective::Group& world);

  std::unique_ptr<collective::Group> shard_, replicate_;  // of hybrid sharding
  parallel::ParallelGroups groups_;
};

}  // namespace yard::loop
