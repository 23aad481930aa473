// A rank that dies in the middle of a backward pass: its peers get an Error, and nobody hangs.
#include <ATen/TensorOperators.h>
#include <ATen/ops/tanh.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <csignal>

#include "models/layers.h"
#include "parallel/adamw.h"
#include "parallel/testing/rank_threads.h"

namespace yard::parallel {
namespace {

using testing::RankGrid;
using testing::RankPlaces;

class Stack {
 public:
  Stack() : list_(3) {
    const models::Scope root(list_);
    for (int64_t i = 0; i < 8; ++i) layers_.emplace_back(root / i, 64, 64);
    for (const models::NamedTensor& p : list_.all()) p.tensor.set_requires_grad(true);
  }
  const std::vector<models::NamedTensor>& parameters() const { return list_.all(); }
  at::Tensor loss() const {
    at::Tensor h = testing::wave({2, 64}, 1);
    for (const models::Linear& layer : layers_) h = at::tanh(layer(h));
    return h.square().mean();
  }

 private:
  models::ParameterList list_;
  std::vector<models::Linear> layers_;
};

// Steps until one fails; `in_backward` is called in each backward pass from the third step on, when
// half of the layers are behind.
Status train(const RankPlaces& places, Sharding sharding,
             const std::function<void()>& in_backward) {
  const Stack model;
  YARD_ASSIGN(const auto parallel,
              DataParallel::create(model.parameters(), places.groups,
                                   {.sharding = sharding, .unit_bytes = 16 << 10}));
  YARD_ASSIGN(const auto adamw, AdamW::create(*parallel, {}));
  int step = 0;
  model.parameters()[8].tensor.register_hook([&](const at::Tensor&) {
    if (step >= 2) in_backward();
  });
  for (; step < 1000; ++step) {
    parallel->begin_step();
    YARD_TRY(parallel->backward(model.loss(), MicroBatch::kLast));
    YARD_TRY(parallel->finish());
    YARD_TRY(adamw->step(1e-3));
  }
  return Ok{};
}

class ParallelFailureTest : public ::testing::TestWithParam<RankGrid> {};

INSTANTIATE_TEST_SUITE_P(Grids, ParallelFailureTest,
                         ::testing::Values(RankGrid{3, 1, Sharding::kNone},
                                           RankGrid{3, 3, Sharding::kOptimizer},
                                           RankGrid{3, 3, Sharding::kGradients},
                                           RankGrid{3, 3, Sharding::kParameters},
                                           RankGrid{4, 2, Sharding::kParameters}),
                         [](const auto& info) { return testing::to_string(info.param); });

TEST_P(ParallelFailureTest, AProcessKilledInTheBackwardPassIsAnErrorOnAllOthers) {
  const std::vector<int> statuses =
      testing::on_forked_grid(GetParam(), [&](const RankPlaces& places) {
        const Status status = train(places, GetParam().sharding, [&] {
          if (places.rank == 1) std::raise(SIGKILL);
        });
        return !status && status.error().code == Code::kUnavailable ? 0 : 1;
      });
  for (int rank = 0; rank < GetParam().world_size; ++rank) {
    const int status = statuses[static_cast<size_t>(rank)];
    if (rank == 1)
      EXPECT_TRUE(WIFSIGNALED(status));
    else
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << rank << ": " << status;
  }
}

TEST_P(ParallelFailureTest, ARankThatGivesUpIsAnErrorOnAll) {
  testing::on_grid(GetParam(), [&](const RankPlaces& places) {
    const Status status = train(places, GetParam().sharding, [&] {
      if (places.rank != 1) return;
      if (places.groups.shard != nullptr) places.groups.shard->abort("enough");
      if (places.groups.replicate != nullptr) places.groups.replicate->abort("enough");
    });
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, Code::kUnavailable);
  });
}

}  // namespace
}  // namespace yard::parallel
