// Ranks are threads. Each has its own copy of a small model; what the ranks compute together must
// equal what one process computes on the whole batch.
#include "parallel/data_parallel.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <mutex>
#include <utility>

#include "parallel/testing/rank_threads.h"

namespace yard::parallel {
namespace {

using models::NamedTensor;
using testing::on_grid;
using testing::RankGrid;
using testing::RankPlaces;
using testing::wave;

constexpr int64_t kRows = 24;  // for 1, 2, 3 and 4 ranks with two micro-batches each

// conv -> linear -> a parameter that is never used.
struct Model {
  at::Tensor conv = wave({4, 3, 3, 3}, 1);
  at::Tensor linear = wave({16, 5}, 2);
  at::Tensor bias = wave({5}, 3);
  at::Tensor unused = wave({7}, 4);

  std::vector<NamedTensor> parameters() {
    std::vector<NamedTensor> all = {
        {"conv", conv}, {"linear.weight", linear}, {"linear.bias", bias}, {"unused", unused}};
    for (NamedTensor& p : all) p.tensor.set_requires_grad(true);
    return all;
  }
  at::Tensor loss(const at::Tensor& x) const {
    const at::Tensor h = at::conv2d(x, conv).reshape({x.size(0), 16});
    return at::addmm(bias, at::tanh(h), linear).square().mean();
  }
};

at::Tensor rows(int64_t begin, int64_t end) {
  return wave({kRows, 3, 4, 4}, 5).slice(0, begin, end);
}

// This rank's rows in two micro-batches.
Status run_step(DataParallel& parallel, const Model& model, int rank, int world_size) {
  const int64_t share = kRows / world_size, half = share / 2, first = rank * share;
  parallel.begin_step();
  YARD_TRY(parallel.backward(model.loss(rows(first, first + half)) / 2, MicroBatch::kMoreToCome));
  YARD_TRY(parallel.backward(model.loss(rows(first + half, first + share)) / 2, MicroBatch::kLast));
  return parallel.finish();
}

at::Tensor one_tensor(const std::vector<at::Tensor>& cuts, const at::Tensor& like) {
  at::Tensor out = at::zeros_like(like);
  int64_t begin = 0;
  for (const at::Tensor& t : cuts) {
    out.narrow(0, begin, t.numel()).copy_(t);
    begin += t.numel();
  }
  return out;
}

Result<std::vector<NamedTensor>> gathered_gradients(DataParallel& parallel) {
  const at::Tensor like = parallel.make_local(at::kFloat, at::kCPU);
  return parallel.gather("", one_tensor(parallel.local_gradients(), like), true);
}

const std::vector<RankGrid> kGrids = {
    {1, 1, Sharding::kNone},       {2, 1, Sharding::kNone},       {3, 1, Sharding::kNone},
    {1, 1, Sharding::kOptimizer},  {2, 2, Sharding::kOptimizer},  {3, 3, Sharding::kOptimizer},
    {2, 2, Sharding::kGradients},  {4, 4, Sharding::kGradients},  {1, 1, Sharding::kParameters},
    {2, 2, Sharding::kParameters}, {3, 3, Sharding::kParameters}, {4, 2, Sharding::kParameters},
    {4, 2, Sharding::kOptimizer}};

class DataParallelTest : public ::testing::TestWithParam<RankGrid> {
 protected:
  void on_ranks(const std::function<void(const RankPlaces&)>& body) { on_grid(GetParam(), body); }

  DataParallelOptions options() const {
    return {.sharding = GetParam().sharding, .unit_bytes = 256};
  }
  std::unique_ptr<DataParallel> make(Model& model, const RankPlaces& places,
                                     const DataParallelOptions& options) {
    auto made = DataParallel::create(model.parameters(), places.groups, options);
    EXPECT_TRUE(made) << made.error().message;
    return *std::move(made);
  }
};

INSTANTIATE_TEST_SUITE_P(Grids, DataParallelTest, ::testing::ValuesIn(kGrids),
                         [](const auto& info) { return testing::to_string(info.param); });

TEST_P(DataParallelTest, GradientsEqualThoseOfOneProcessOnTheWholeBatch) {
  Model reference;
  const auto expected = reference.parameters();
  reference.loss(rows(0, kRows)).backward();
  for (const Accumulation accumulation : {Accumulation::kAsSharded, Accumulation::kWhole}) {
    on_ranks([&](const RankPlaces& places) {
      Model model;
      DataParallelOptions with = options();
      with.accumulation = accumulation;
      const auto parallel = make(model, places, with);
      for (int repeat = 0; repeat < 3; ++repeat) {
        const Status done = run_step(*parallel, model, places.rank, GetParam().world_size);
        ASSERT_TRUE(done) << done.error().message;
        const auto gradients = gathered_gradients(*parallel);
        ASSERT_TRUE(gradients) << gradients.error().message;
        for (size_t i = 0; i < 3; ++i)
          EXPECT_TRUE((*gradients)[i].tensor.allclose(expected[i].tensor.grad(), 1e-5, 1e-7)) << i;
        EXPECT_EQ((*gradients)[3].tensor.abs().sum().item<float>(), 0.0F);
      }
    });
  }
}

TEST_P(DataParallelTest, EveryRankStartsWithTheValuesOfRankZero) {
  on_ranks([&](const RankPlaces& places) {
    Model model;
    model.linear.mul_(static_cast<double>(places.rank + 1));
    const auto parallel = make(model, places, options());
    EXPECT_TRUE(model.linear.detach().equal(wave({16, 5}, 2)));
    EXPECT_TRUE(model.conv.detach().equal(wave({4, 3, 3, 3}, 1)));
    EXPECT_TRUE(model.unused.detach().equal(wave({7}, 4)));
  });
}

TEST_P(DataParallelTest, TheModelComputesWithWhatIsPublished) {
  on_ranks([&](const RankPlaces& places) {
    Model model;
    const auto parallel = make(model, places, options());
    c10::NoGradGuard no_grad;
    for (const at::Tensor& local : parallel->local_parameters()) at::Tensor(local).mul_(2);
    ASSERT_TRUE(parallel->publish(1));
    EXPECT_TRUE(model.conv.detach().equal(wave({4, 3, 3, 3}, 1) * 2));
    EXPECT_TRUE(model.linear.detach().equal(wave({16, 5}, 2) * 2));
  });
}

TEST_P(DataParallelTest, ReleasedParametersAreOrdinaryAndFollow) {
  on_ranks([&](const RankPlaces& places) {
    Model model;
    auto parallel = make(model, places, options());
    ASSERT_TRUE(parallel->release());
    EXPECT_TRUE(model.conv.detach().equal(wave({4, 3, 3, 3}, 1)));
    {
      c10::NoGradGuard no_grad;
      for (const at::Tensor& local : parallel->local_parameters()) at::Tensor(local).mul_(3);
    }
    ASSERT_TRUE(parallel->publish(1));
    parallel.reset();
    EXPECT_TRUE(model.linear.detach().equal(wave({16, 5}, 2) * 3));
    EXPECT_TRUE(model.conv.detach().equal(wave({4, 3, 3, 3}, 1) * 3));
  });
}

TEST_P(DataParallelTest, GatheringGivesWholeTensorsByNameWhereWanted) {
  on_ranks([&](const RankPlaces& places) {
    Model model;
    const auto parallel = make(model, places, options());
    const auto whole = parallel->gather("w.", {}, places.rank == 0);
    ASSERT_TRUE(whole) << whole.error().message;
    if (places.rank != 0) {
      EXPECT_TRUE(whole->empty());
      return;
    }
    ASSERT_EQ(whole->size(), 4u);
    EXPECT_EQ((*whole)[0].name, "w.conv");
    EXPECT_TRUE((*whole)[0].tensor.equal(wave({4, 3, 3, 3}, 1)));
    EXPECT_TRUE((*whole)[3].tensor.equal(wave({7}, 4)));
  });
}

TEST_P(DataParallelTest, PiecesOfAllRanksMakeEachTensorWholeOnce) {
  std::mutex mutex;
  std::vector<std::vector<ShardedTensor>> told;
  on_ranks([&](const RankPlaces& places) {
    Model model;
    const auto parallel = make(model, places, options());
    std::vector<ShardedTensor> pieces = parallel->sharded_parameters("");
    for (ShardedTensor& t : pieces)
      for (TensorPiece& piece : t.pieces) piece.values = piece.values.clone();
    const std::lock_guard lock(mutex);
    if (parallel->replica() == 0) told.push_back(std::move(pieces));
  });
  Model model;
  const auto parameters = model.parameters();
  for (size_t i = 0; i < parameters.size(); ++i) {
    const at::Tensor expected = parameters[i].tensor.detach().flatten();
    at::Tensor covered = at::zeros_like(expected);
    for (const auto& of_rank : told) {
      EXPECT_EQ(of_rank[i].name, parameters[i].name);
      EXPECT_EQ(of_rank[i].shape, parameters[i].tensor.sizes().vec());
      for (const TensorPiece& piece : of_rank[i].pieces) {
        const int64_t count = piece.values.numel();
        EXPECT_TRUE(piece.values.equal(expected.narrow(0, piece.begin, count)));
        covered.narrow(0, piece.begin, count).add_(1);
      }
    }
    EXPECT_TRUE(covered.eq(1).all().item<bool>()) << parameters[i].name;
  }
}

TEST(DataParallelOptionsTest, WhatDoesNotFitIsRefused) {
  const auto refusal = [](at::Tensor tensor, const DataParallelOptions& options) {
    auto group = collective::single_rank_group();
    const ParallelGroups groups{.shard =
                                    options.sharding == Sharding::kNone ? nullptr : group.get()};
    auto made = DataParallel::create({{"p", tensor.set_requires_grad(true)}}, groups, options);
    if (made) return std::string("accepted");
    EXPECT_EQ(made.error().code, Code::kInvalidArgument);
    return made.error().message;
  };
  const auto expect = [](const std::string& message, std::string_view part) {
    EXPECT_PRED_FORMAT2(::testing::IsSubstring, std::string(part), message);
  };
  expect(refusal(wave({4}, 0).to(at::kBFloat16), {}), "parameter p");
  expect(refusal(wave({4}, 0), {.unit_bytes = 0}), "unit_bytes");
  expect(refusal(wave({4}, 0), {.sharding = Sharding::kParameters, .gathered_units = 1}),
         "gathered_units");
  expect(refusal(wave({4}, 0), {.compute_dtype = at::kHalf}), "f32 or bf16");
  expect(refusal(wave({4}, 0), {.stochastic_rounding = true}), "stochastic");
  auto without = DataParallel::create({{"p", wave({4}, 0).set_requires_grad(true)}}, {},
                                      {.sharding = Sharding::kOptimizer});
  ASSERT_FALSE(without);
  expect(without.error().message, "belong together");
}

TEST(DataParallelFailureTest, AGradientThatComesTwiceIsNamed) {
  Model model;
  auto parallel = DataParallel::create(model.parameters(), {}, {});
  ASSERT_TRUE(parallel) << parallel.error().message;
  (*parallel)->begin_step();
  // An inner backward pass through the same parameter, as naive recomputation does.
  bool inside = false;
  model.conv.register_hook([&](const at::Tensor&) {
    if (std::exchange(inside, true)) return;
    const c10::AutoGradMode with_graph(true);
    model.conv.square().sum().backward();
  });
  const Status status = (*parallel)->backward(model.loss(rows(0, 2)), MicroBatch::kLast);
  ASSERT_FALSE(status);
  EXPECT_PRED_FORMAT2(::testing::IsSubstring, "conv: its gradient became ready twice",
                      status.error().message);
}

}  // namespace
}  // namespace yard::parallel
