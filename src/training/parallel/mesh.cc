#include "parallel/mesh.h"

#include <fmt/format.h>

#include <cstdint>

namespace yard::parallel {

std::string_view to_string(MeshAxis axis) {
  switch (axis) {
    case MeshAxis::kTensor:
      return "tensor";
    case MeshAxis::kShard:
      return "shard";
    case MeshAxis::kReplicate:
      return "replicate";
    case MeshAxis::kPipeline:
      return "pipeline";
  }
  YARD_UNREACHABLE();
}

int MeshExtent::along(MeshAxis axis) const {
  switch (axis) {
    case MeshAxis::kTensor:
      return tensor;
    case MeshAxis::kShard:
      return shard;
    case MeshAxis::kReplicate:
      return replicate;
    case MeshAxis::kPipeline:
      return pipeline;
  }
  YARD_UNREACHABLE();
}

Result<Mesh> Mesh::create(const MeshExtent& sizes, int world_size) {
  int64_t product = 1;
  for (const MeshAxis axis : kMeshAxes) {
    const int size = sizes.along(axis);
    if (size < 1)
      return Error{Code::kInvalidArgument,
                   fmt::format("mesh: {} is {}, must be at least 1", to_string(axis), size)};
    product *= size;
    if (product > world_size) break;
  }
  if (product == world_size) return Mesh(sizes, world_size);
  return Error{Code::kInvalidArgument,
               fmt::format("mesh: tensor {} x shard {} x replicate {} x pipeline {} is not the {} "
                           "ranks that there are",
                           sizes.tensor, sizes.shard, sizes.replicate, sizes.pipeline, world_size)};
}

int Mesh::stride_of(MeshAxis axis) const {
  int stride = 1;
  for (const MeshAxis inner : kMeshAxes) {
    if (inner == axis) break;
    stride *= sizes_.along(inner);
  }
  return stride;
}

MeshExtent Mesh::place_of(int rank) const {
  YARD_CHECK(rank >= 0 && rank < world_size_);
  const auto along = [&](MeshAxis axis) { return rank / stride_of(axis) % sizes_.along(axis); };
  return {.tensor = along(MeshAxis::kTensor),
          .shard = along(MeshAxis::kShard),
          .replicate = along(MeshAxis::kReplicate),
          .pipeline = along(MeshAxis::kPipeline)};
}

int Mesh::rank_at(const MeshExtent& place) const {
  int rank = 0;
  for (const MeshAxis axis : kMeshAxes) {
    YARD_CHECK(place.along(axis) >= 0 && place.along(axis) < sizes_.along(axis));
    rank += place.along(axis) * stride_of(axis);
  }
  return rank;
}

int Mesh::line_of(MeshAxis axis, int rank) const {
  // The rank of the line's first member.
  return rank - place_of(rank).along(axis) * stride_of(axis);
}

std::vector<int> Mesh::ranks_along(MeshAxis axis, int rank) const {
  std::vector<int> ranks;
  const int first = line_of(axis, rank);
  for (int i = 0; i < sizes_.along(axis); ++i) ranks.push_back(first + i * stride_of(axis));
  return ranks;
}

Result<MeshGroups> connect_mesh(const Mesh& mesh, int rank, const SplitGroup& split) {
  MeshGroups groups;
  for (const MeshAxis axis : kMeshAxes) {
    if (mesh.sizes().along(axis) == 1) continue;
    YARD_ASSIGN(groups.along[static_cast<size_t>(axis)],
                split(mesh.line_of(axis, rank), mesh.place_of(rank).along(axis)));
  }
  return groups;
}

}  // namespace yard::parallel
