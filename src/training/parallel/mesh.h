// Mesh: the ranks of a run as a grid with four axes, and the groups along each.
//
// Along `tensor` ranks share single matrices, along `shard` a model's parameters, along `replicate`
// they hold copies of them, along `pipeline` stretches of its layers. Neighbours along `tensor`
// have neighbouring ranks, then those along `shard`, `replicate` and `pipeline`: who talks most is
// nearest. Pure arithmetic but for connect_mesh().
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "collective/collective.h"

namespace yard::parallel {

// From the innermost to the outermost.
enum class MeshAxis : uint8_t { kTensor, kShard, kReplicate, kPipeline };
inline constexpr std::array<MeshAxis, 4> kMeshAxes = {MeshAxis::kTensor, MeshAxis::kShard,
                                                      MeshAxis::kReplicate, MeshAxis::kPipeline};
std::string_view to_string(MeshAxis axis);

// A size, or a place, along each axis.
struct MeshExtent {
  int tensor = 1;
  int shard = 1;
  int replicate = 1;
  int pipeline = 1;
  int along(MeshAxis axis) const;
  bool operator==(const MeshExtent&) const = default;
};

class Mesh {
 public:
  // kInvalidArgument: a size below 1, or sizes whose product is not `world_size`.
  static Result<Mesh> create(const MeshExtent& sizes, int world_size);

  int size() const { return world_size_; }
  const MeshExtent& sizes() const { return sizes_; }
  // `rank` in [0, size()), `place` within the sizes.
  MeshExtent place_of(int rank) const;
  int rank_at(const MeshExtent& place) const;
  // The ranks that differ from `rank` along `axis` alone, with itself, in order of their place.
  std::vector<int> ranks_along(MeshAxis axis, int rank) const;
  // The same number for the ranks of one such line, and another for every other line of the axis.
  int line_of(MeshAxis axis, int rank) const;

 private:
  Mesh(const MeshExtent& sizes, int world_size) : sizes_(sizes), world_size_(world_size) {}
  int stride_of(MeshAxis axis) const;

  MeshExtent sizes_;
  int world_size_;
};

// The group of this rank's line along each axis; null where the axis has size 1.
struct MeshGroups {
  std::array<std::unique_ptr<collective::Group>, kMeshAxes.size()> along;
  collective::Group* get(MeshAxis axis) const { return along[static_cast<size_t>(axis)].get(); }
};

// Makes a group of the ranks that give the same color, ordered by key: Group::split().
using SplitGroup = std::function<Result<std::unique_ptr<collective::Group>>(int color, int key)>;

// Collective over all ranks of the mesh. Errors are those of `split`.
Result<MeshGroups> connect_mesh(const Mesh& mesh, int rank, const SplitGroup& split);

}  // namespace yard::parallel
