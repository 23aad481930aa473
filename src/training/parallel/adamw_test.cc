#include "parallel/adamw.h"

#include <ATen/TensorOperators.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <mutex>

#include "parallel/testing/rank_threads.h"

namespace yard::parallel {
namespace {

using models::NamedTensor;
using testing::on_grid;
using testing::RankPlaces;
using testing::wave;

struct Model {
  at::Tensor weight = wave({11, 7}, 1).set_requires_grad(true);
  at::Tensor bias = wave({3}, 2).set_requires_grad(true);
  std::vector<NamedTensor> parameters() const { return {{"weight", weight}, {"bias", bias}}; }
  at::Tensor loss() const { return weight.square().sum() + (bias * bias * bias).sum(); }
};

struct Rank {
  Model model;
  std::unique_ptr<DataParallel> parallel;
  std::unique_ptr<AdamW> adamw;

  Rank(const RankPlaces& places, const AdamWOptions& options, Sharding sharding) {
    auto made = DataParallel::create(model.parameters(), places.groups,
                                     {.sharding = sharding, .unit_bytes = 128});
    EXPECT_TRUE(made) << made.error().message;
    parallel = *std::move(made);
    adamw = *AdamW::create(*parallel, options);
  }
  double step() {
    parallel->begin_step();
    EXPECT_TRUE(parallel->backward(model.loss(), MicroBatch::kLast));
    EXPECT_TRUE(parallel->finish());
    return *adamw->step(0.1);
  }
  std::vector<NamedTensor> weights() { return *parallel->gather("", {}, true); }
};

TEST(AdamWTest, TheNormIsThatOfAllGradientsOnEveryRank) {
  const Model model;
  double squares = 0;
  model.loss().backward();
  for (const NamedTensor& p : model.parameters())
    squares += p.tensor.grad().to(at::kDouble).square().sum().item<double>();
  for (const Sharding sharding : {Sharding::kOptimizer, Sharding::kParameters}) {
    on_grid({3, 3, sharding}, [&](const RankPlaces& places) {
      EXPECT_NEAR(Rank(places, {}, sharding).step(), std::sqrt(squares), 1e-6 * std::sqrt(squares));
    });
  }
}

TEST(AdamWTest, StateOnADeviceOfItsOwnGivesTheSameBits) {
  on_grid({2, 2, Sharding::kParameters}, [](const RankPlaces& places) {
    Rank usual(places, {.clip = 1}, Sharding::kParameters);
    Rank offloaded(places, {.clip = 1, .state_device = at::Device(at::kCPU)},
                   Sharding::kParameters);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(usual.step(), offloaded.step());
    const auto a = usual.weights(), b = offloaded.weights();
    for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(a[i].tensor.equal(b[i].tensor));
  });
}

TEST(AdamWTest, ANormThatIsNotFiniteChangesNothing) {
  Rank rank({}, {}, Sharding::kNone);
  const at::Tensor before = rank.model.weight.detach().clone();
  rank.parallel->begin_step();
  ASSERT_TRUE(rank.parallel->backward(rank.model.loss() * std::nan(""), MicroBatch::kLast));
  ASSERT_TRUE(rank.parallel->finish());
  EXPECT_FALSE(std::isfinite(*rank.adamw->step(0.1)));
  EXPECT_TRUE(rank.model.weight.detach().equal(before));
  EXPECT_EQ(rank.adamw->step_count(), 0);
}

// Whole tensors by name out of the pieces of all ranks.
class Assembly {
 public:
  void add(const std::vector<ShardedTensor>& tensors) {
    const std::lock_guard lock(mutex_);
    if (whole_.empty())
      for (const ShardedTensor& t : tensors) whole_.push_back({t.name, wave(t.shape, 0) * 0});
    for (size_t i = 0; i < tensors.size(); ++i)
      for (const TensorPiece& piece : tensors[i].pieces)
        whole_[i]
            .tensor.view({-1})
            .narrow(0, piece.begin, piece.values.numel())
            .copy_(piece.values);
  }
  const std::vector<NamedTensor>& whole() const { return whole_; }

 private:
  std::mutex mutex_;
  std::vector<NamedTensor> whole_;
};

TEST(AdamWTest, StateByNameGoesOnWithAnyNumberOfRanksAndAnySharding) {
  Assembly saved, expected;
  on_grid({2, 2, Sharding::kParameters}, [&](const RankPlaces& places) {
    Rank rank(places, {}, Sharding::kParameters);
    for (int i = 0; i < 3; ++i) rank.step();
    saved.add(rank.adamw->sharded_tensors());
    rank.step();
    expected.add(rank.adamw->sharded_tensors());
  });
  ASSERT_EQ(saved.whole().size(), 6u);
  EXPECT_EQ(saved.whole()[2].name, "exp_avg.weight");
  const std::vector<testing::RankGrid> grids = {{3, 3, Sharding::kParameters},
                                                {4, 4, Sharding::kOptimizer},
                                                {4, 2, Sharding::kGradients},
                                                {1, 1, Sharding::kNone}};
  for (const auto& grid : grids) {
    on_grid(grid, [&](const RankPlaces& places) {
      Rank rank(places, {}, grid.sharding);
      ASSERT_TRUE(copy_pieces(saved.whole(), rank.adamw->sharded_tensors(), "saved"));
      ASSERT_TRUE(rank.adamw->restored(3));
      rank.step();
      const auto weights = rank.weights();
      for (size_t i = 0; i < weights.size(); ++i)
        EXPECT_TRUE(weights[i].tensor.allclose(expected.whole()[i].tensor, 1e-6, 1e-7)) << i;
    });
  }
}

TEST(AdamWTest, PiecesOfAnotherModelAreRefusedByName) {
  Rank rank({}, {}, Sharding::kNone);
  Assembly saved;
  saved.add(rank.adamw->sharded_tensors());
  const auto refusal = [&](std::vector<NamedTensor> from) {
    const Status status = copy_pieces(from, rank.adamw->sharded_tensors(), "saved");
    return status ? "accepted" : status.error().message;
  };
  auto fewer = saved.whole();
  fewer.erase(fewer.begin() + 3);
  EXPECT_PRED_FORMAT2(::testing::IsSubstring, "'exp_avg.bias' is missing", refusal(fewer));
  auto other = saved.whole();
  other[0].tensor = wave({7, 11}, 0);
  EXPECT_PRED_FORMAT2(::testing::IsSubstring, "'weight' has shape [7, 11]", refusal(other));
  auto more = saved.whole();
  more.push_back({"third", wave({1}, 0)});
  EXPECT_PRED_FORMAT2(::testing::IsSubstring, "'third' is not part", refusal(more));
}

}  // namespace
}  // namespace yard::parallel
