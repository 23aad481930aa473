#include "loop/training_groups.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "parallel/mesh.h"

namespace yard::loop {

bool shards_parameters(const ParallelRecipe& recipe) {
  return recipe.mode == ParallelMode::kZero3 || recipe.mode == ParallelMode::kHybrid;
}

Result<std::unique_ptr<TrainingGroups>> TrainingGroups::create(const ParallelRecipe& recipe,
                                                               collective::Group& world) {
  auto made = std::unique_ptr<TrainingGroups>(new TrainingGroups());
  if (recipe.mode == ParallelMode::kHybrid) {
    YARD_TRY(made->connect_hybrid(recipe.shard_size, world));
  } else if (recipe.mode == ParallelMode::kDdp) {
    made->groups_.replicate = &world;
  } else {
    made->groups_.shard = &world;
  }
  return made;
}

Status TrainingGroups::connect_hybrid(int64_t shard_size, collective::Group& world) {
  if (world.size() % shard_size != 0) {
    std::vector<int> divisors;
    for (int d = 1; d <= world.size(); ++d)
      if (world.size() % d == 0) divisors.push_back(d);
    return Error{
        Code::kInvalidArgument,
        fmt::format("parallel: shard_size {} does not divide the {} ranks; these would: {}",
                    shard_size, world.size(), fmt::join(divisors, ", "))};
  }
  const auto size = static_cast<int>(shard_size);
  YARD_ASSIGN(
      const parallel::Mesh mesh,
      parallel::Mesh::create({.shard = size, .replicate = world.size() / size}, world.size()));
  YARD_ASSIGN(parallel::MeshGroups groups,
              parallel::connect_mesh(mesh, world.rank(),
                                     [&](int color, int key) { return world.split(color, key); }));
  shard_ = std::move(groups.along[static_cast<size_t>(parallel::MeshAxis::kShard)]);
  replicate_ = std::move(groups.along[static_cast<size_t>(parallel::MeshAxis::kReplicate)]);
  if (!shard_) shard_ = collective::single_rank_group();
  groups_ = {.shard = shard_.get(), .replicate = replicate_.get()};
  return Ok{};
}

}  // namespace yard::loop
