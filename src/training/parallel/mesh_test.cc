#include "parallel/mesh.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

namespace yard::parallel {
namespace {

const MeshExtent kSizes{.tensor = 2, .shard = 3, .replicate = 2, .pipeline = 2};

TEST(MeshTest, EveryRankHasAPlaceOfItsOwn) {
  const Mesh mesh = *Mesh::create(kSizes, 24);
  for (int rank = 0; rank < 24; ++rank) EXPECT_EQ(mesh.rank_at(mesh.place_of(rank)), rank);
}

TEST(MeshTest, NeighboursAlongTensorAreNeighboursThenShardThenReplicateThenPipeline) {
  const Mesh mesh = *Mesh::create(kSizes, 24);
  EXPECT_EQ(mesh.ranks_along(MeshAxis::kTensor, 3), (std::vector<int>{2, 3}));
  EXPECT_EQ(mesh.ranks_along(MeshAxis::kShard, 3), (std::vector<int>{1, 3, 5}));
  EXPECT_EQ(mesh.ranks_along(MeshAxis::kReplicate, 3), (std::vector<int>{3, 9}));
  EXPECT_EQ(mesh.ranks_along(MeshAxis::kPipeline, 3), (std::vector<int>{3, 15}));
}

TEST(MeshTest, LinesOfAnAxisPartTheRanks) {
  const Mesh mesh = *Mesh::create(kSizes, 24);
  for (const MeshAxis axis : kMeshAxes) {
    std::map<int, std::vector<int>> lines;
    for (int rank = 0; rank < 24; ++rank) lines[mesh.line_of(axis, rank)].push_back(rank);
    EXPECT_EQ(lines.size(), static_cast<size_t>(24 / kSizes.along(axis)));
    for (const auto& [line, ranks] : lines)
      for (const int rank : ranks) EXPECT_EQ(mesh.ranks_along(axis, rank), ranks);
  }
}

TEST(MeshTest, SizesThatAreNotTheRanksAreRefused) {
  const auto refusal = [](const MeshExtent& sizes, int world_size) {
    const auto mesh = Mesh::create(sizes, world_size);
    if (mesh) return std::string("accepted");
    EXPECT_EQ(mesh.error().code, Code::kInvalidArgument);
    return mesh.error().message;
  };
  EXPECT_PRED_FORMAT2(testing::IsSubstring, "not the 23 ranks", refusal(kSizes, 23));
  EXPECT_PRED_FORMAT2(testing::IsSubstring, "not the 25 ranks", refusal(kSizes, 25));
  EXPECT_PRED_FORMAT2(testing::IsSubstring, "shard is 0", refusal({.shard = 0}, 1));
  const int many = 1 << 20;
  EXPECT_PRED_FORMAT2(
      testing::IsSubstring, "not the 1 ranks",
      refusal({.tensor = many, .shard = many, .replicate = many, .pipeline = many}, 1));
}

TEST(MeshTest, GroupsAreMadeForAxesOfMoreThanOneRankByLineAndPlace) {
  const Mesh mesh = *Mesh::create({.shard = 3, .replicate = 2}, 6);
  std::vector<std::pair<int, int>> calls;
  const auto groups =
      connect_mesh(mesh, 4, [&](int color, int key) -> Result<std::unique_ptr<collective::Group>> {
        calls.emplace_back(color, key);
        return collective::single_rank_group();
      });
  ASSERT_TRUE(groups);
  EXPECT_EQ(calls, (std::vector<std::pair<int, int>>{{3, 1}, {1, 1}}));
  EXPECT_EQ(groups->get(MeshAxis::kTensor), nullptr);
  EXPECT_NE(groups->get(MeshAxis::kShard), nullptr);
  EXPECT_NE(groups->get(MeshAxis::kReplicate), nullptr);
  EXPECT_EQ(groups->get(MeshAxis::kPipeline), nullptr);
}

TEST(MeshTest, AGroupThatCannotBeMadeIsTheAnswer) {
  const auto groups = connect_mesh(*Mesh::create({.shard = 2}, 2), 0,
                                   [](int, int) -> Result<std::unique_ptr<collective::Group>> {
                                     return Error{Code::kUnavailable, "rank 1 died"};
                                   });
  ASSERT_FALSE(groups);
  EXPECT_EQ(groups.error().code, Code::kUnavailable);
}

}  // namespace
}  // namespace yard::parallel
