// What each rank really holds: tensors counted by libtorch's allocator for each thread, and the
// memory that the collectives share, which is outside of it.
#include <ATen/TensorOperators.h>
#include <ATen/ops/tanh.h>
#include <gtest/gtest.h>

#include "models/layers.h"
#include "parallel/adamw.h"
#include "parallel/data_parallel.h"
#include "parallel/testing/rank_threads.h"
#include "tensor/file_tensor.h"

namespace yard::parallel {
namespace {

using testing::on_grid;
using testing::RankGrid;
using testing::RankPlaces;
using testing::TensorMemory;

constexpr int64_t kWidth = 128, kLayerCount = 32;
constexpr int64_t kLayerBytes = (kWidth * kWidth + kWidth) * 4;
constexpr int64_t kModelBytes = kLayerCount * kLayerBytes;  // 2 MiB of f32
// Activations of two rows, scalars, padding.
constexpr int64_t kSmallBytes = 160 << 10;

class Stack {
 public:
  explicit Stack(models::WeightStart start) : list_(start) {
    const models::Scope root(list_);
    for (int64_t i = 0; i < kLayerCount; ++i) layers_.emplace_back(root / i, kWidth, kWidth);
    for (const models::NamedTensor& p : list_.all()) p.tensor.set_requires_grad(true);
  }
  const models::ParameterList& list() const { return list_; }
  at::Tensor loss() const {
    at::Tensor h = testing::wave({2, kWidth}, 1).to(layers_[0].weight.scalar_type());
    for (const models::Linear& layer : layers_) h = at::tanh(layer(h));
    return h.square().mean();
  }

 private:
  models::ParameterList list_;
  std::vector<models::Linear> layers_;
};

Status run_step(DataParallel& parallel, AdamW& adamw, const Stack& model) {
  parallel.begin_step();
  YARD_TRY(parallel.backward(model.loss(), MicroBatch::kMoreToCome));
  YARD_TRY(parallel.backward(model.loss(), MicroBatch::kLast));
  YARD_TRY(parallel.finish());
  YARD_TRY(adamw.step(1e-3));
  return Ok{};
}

struct Held {
  int64_t tensors_at_start = 0, most_tensors_at_start = 0;  // when the model has been made
  int64_t tensors = 0, most_tensors = 0;                    // after two steps
  ParallelMemory memory;
};

// Of every rank.
std::vector<Held> measure(const RankGrid& grid, DataParallelOptions options) {
  options.sharding = grid.sharding;
  options.unit_bytes = kLayerBytes + 1024;
  std::vector<Held> all(static_cast<size_t>(grid.world_size));
  on_grid(grid, [&](const RankPlaces& places) {
    const TensorMemory tensors;
    Held& held = all[static_cast<size_t>(places.rank)];
    Stack model(models::WeightStart::later(3));
    const auto start = [&](size_t index, at::Tensor& out) -> Status {
      model.list().start(index, out);
      return Ok{};
    };
    auto parallel =
        DataParallel::create_deferred(model.list().all(), start, places.groups, options);
    ASSERT_TRUE(parallel) << parallel.error().message;
    held.tensors_at_start = tensors.now_bytes();
    held.most_tensors_at_start = tensors.most_bytes();
    auto adamw = AdamW::create(**parallel, {});
    ASSERT_TRUE(adamw) << adamw.error().message;
    for (int step = 0; step < 2; ++step) ASSERT_TRUE(run_step(**parallel, **adamw, model));
    held.tensors = tensors.now_bytes();
    held.most_tensors = tensors.most_bytes();
    held.memory = (*parallel)->memory();
  });
  return all;
}

TEST(ParallelMemoryTest, UnderZero3EverythingIsSharedOutButAFewUnits) {
  for (const int ranks : {2, 4}) {
    for (const Held& held : measure({ranks, ranks, Sharding::kParameters}, {})) {
      // Parameters, gradients and two moments.
      const int64_t share = 4 * kModelBytes / ranks;
      EXPECT_GE(held.tensors, share);
      // A unit's chunk for each slot while gradients of the second micro-batch are added.
      EXPECT_LE(held.tensors, share + 2 * kLayerBytes / ranks + kSmallBytes);
      // The gradient that autograd has just made, besides.
      EXPECT_LE(held.most_tensors, share + 3 * kLayerBytes + kSmallBytes);
      EXPECT_LE(held.memory.gathered_parameters + held.memory.gradient_units,
                static_cast<size_t>(5 * kLayerBytes + kSmallBytes));
      EXPECT_EQ(held.memory.whole_gradients + held.memory.compute_parameters, 0u);
    }
  }
}

TEST(ParallelMemoryTest, UnderZero2ParametersAreWholeAndTheRestIsSharedOut) {
  for (const Held& held : measure({4, 4, Sharding::kGradients}, {})) {
    EXPECT_GE(held.memory.parameters, static_cast<size_t>(kModelBytes));
    EXPECT_LE(held.memory.parameters, static_cast<size_t>(kModelBytes + kSmallBytes));
    // Gradients and moments; the whole parameters are in shared memory.
    EXPECT_LE(held.tensors, 3 * kModelBytes / 4 + kSmallBytes + kLayerBytes);
    EXPECT_EQ(held.memory.whole_gradients, 0u);
    EXPECT_LE(held.memory.gradient_units, static_cast<size_t>(3 * kLayerBytes + kSmallBytes));
  }
}

TEST(ParallelMemoryTest, UnderZero1MomentsAreSharedOut) {
  for (const Held& held : measure({4, 4, Sharding::kOptimizer}, {})) {
    EXPECT_GE(held.memory.whole_gradients, static_cast<size_t>(kModelBytes));
    EXPECT_LE(held.tensors, 3 * kModelBytes / 4 + kSmallBytes + kLayerBytes);
  }
}

TEST(ParallelMemoryTest, Bf16ParametersAreGatheredInHalfTheMemory) {
  const auto f32 = measure({2, 2, Sharding::kParameters}, {});
  const auto bf16 = measure({2, 2, Sharding::kParameters}, {.compute_dtype = at::kBFloat16});
  EXPECT_EQ(bf16[0].memory.gathered_parameters * 2, f32[0].memory.gathered_parameters);
  EXPECT_EQ(bf16[0].memory.compute_parameters * 2, bf16[0].memory.parameters);
}

TEST(ParallelMemoryTest, AModelMadeLaterIsNeverWholeOnAnyRank) {
  for (const Held& held : measure({4, 4, Sharding::kParameters}, {})) {
    EXPECT_GE(held.tensors_at_start, 2 * kModelBytes / 4);
    EXPECT_LE(held.most_tensors_at_start, 2 * kModelBytes / 4 + 2 * kLayerBytes + kSmallBytes);
  }
}

TEST(ParallelMemoryTest, WeightsThatAreGatheredIntoAFileAreWholeInNoRanksMemory) {
  on_grid({4, 4, Sharding::kParameters}, [](const RankPlaces& places) {
    const Stack at_once{models::WeightStart(3)};
    const TensorMemory tensors;
    Stack later(models::WeightStart::later(3));
    const auto start = [&](size_t index, at::Tensor& out) -> Status {
      later.list().start(index, out);
      return Ok{};
    };
    auto parallel = DataParallel::create_deferred(
        later.list().all(), start, places.groups,
        {.sharding = Sharding::kParameters, .unit_bytes = kLayerBytes + 1024});
    ASSERT_TRUE(parallel) << parallel.error().message;
    at::Tensor into;
    if (places.rank == 1) {
      auto file = tensor::make_file_tensor(::testing::TempDir(), kModelBytes / 4, at::kFloat);
      ASSERT_TRUE(file) << file.error().message;
      into = *std::move(file);
    }
    const auto whole = (*parallel)->gather_into(into);
    ASSERT_TRUE(whole) << whole.error().message;
    // Parameters and gradients shared out, and units on their way.
    EXPECT_LE(tensors.most_bytes(), 2 * kModelBytes / 4 + 2 * kLayerBytes + kSmallBytes);
    ASSERT_EQ(whole->size(), places.rank == 1 ? later.list().all().size() : 0u);
    for (size_t i = 0; i < whole->size(); ++i) {
      EXPECT_EQ((*whole)[i].name, later.list().all()[i].name);
      EXPECT_TRUE((*whole)[i].tensor.equal(at_once.list().all()[i].tensor.detach())) << i;
    }
  });
}

TEST(ParallelMemoryTest, AModelMadeLaterStartsWithTheSameValues) {
  on_grid({3, 3, Sharding::kParameters}, [](const RankPlaces& places) {
    const Stack at_once{models::WeightStart(3)};
    Stack later(models::WeightStart::later(3));
    const auto start = [&](size_t index, at::Tensor& out) -> Status {
      EXPECT_EQ(places.rank, 0);
      later.list().start(index, out);
      return Ok{};
    };
    auto parallel = DataParallel::create_deferred(later.list().all(), start, places.groups,
                                                  {.sharding = Sharding::kParameters});
    ASSERT_TRUE(parallel) << parallel.error().message;
    const auto whole = (*parallel)->gather("", {}, true);
    ASSERT_TRUE(whole) << whole.error().message;
    for (size_t i = 0; i < whole->size(); ++i)
      EXPECT_TRUE((*whole)[i].tensor.equal(at_once.list().all()[i].tensor.detach())) << i;
  });
}

TEST(ParallelMemoryTest, AStartThatFailsEndsAllRanks) {
  on_grid({2, 2, Sharding::kParameters}, [](const RankPlaces& places) {
    Stack later(models::WeightStart::later(3));
    const auto start = [&](size_t index, at::Tensor& out) -> Status {
      if (index == 5) return Error{Code::kCorrupt, "weights.safetensors: damaged"};
      later.list().start(index, out);
      return Ok{};
    };
    const auto made = DataParallel::create_deferred(
        later.list().all(), start, places.groups,
        {.sharding = Sharding::kParameters, .unit_bytes = kLayerBytes});
    ASSERT_FALSE(made);
    EXPECT_PRED_FORMAT2(::testing::IsSubstring, "weights.safetensors: damaged",
                        made.error().message);
  });
}

}  // namespace
}  // namespace yard::parallel
