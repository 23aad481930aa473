// How often units are gathered; that what is computed with them is right is tested through
// DataParallel.
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/tanh.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "models/layers.h"
#include "parallel/adamw.h"
#include "parallel/testing/rank_threads.h"

namespace yard::parallel {
namespace {

using testing::RankPlaces;

constexpr int64_t kUnits = 6, kWidth = 64;

struct Stack {
  models::ParameterList list{3};
  std::vector<models::Linear> layers;

  Stack() {
    for (int64_t i = 0; i < kUnits; ++i)
      layers.emplace_back(models::Scope(list) / i, kWidth, kWidth);
    for (const models::NamedTensor& p : list.all()) p.tensor.set_requires_grad(true);
  }
  at::Tensor output(int64_t rows = 2) const {
    at::Tensor h = testing::wave({rows, kWidth}, 1);
    for (const models::Linear& layer : layers) h = at::tanh(layer(h));
    return h;
  }
};

int64_t gather_count(const collective::Group& group) {
  const auto flight = group.flight();
  return std::count_if(flight.begin(), flight.end(), [](const collective::FlightRecord& record) {
    return record.call.starts_with("all_gather");
  });
}

// Two ranks, a unit to a layer.
void on_two_ranks(
    int gathered_units,
    const std::function<void(const RankPlaces&, Stack&, DataParallel&, AdamW&)>& body) {
  testing::on_grid({2, 2, Sharding::kParameters}, [&](const RankPlaces& places) {
    Stack model;
    auto parallel = DataParallel::create(model.list.all(), places.groups,
                                         {.sharding = Sharding::kParameters,
                                          .unit_bytes = (kWidth + 1) * kWidth * 4,
                                          .gathered_units = gathered_units});
    ASSERT_TRUE(parallel) << parallel.error().message;
    auto adamw = AdamW::create(**parallel, {});
    ASSERT_TRUE(adamw);
    body(places, model, **parallel, **adamw);
  });
}

void run_step(const Stack& model, DataParallel& parallel, AdamW& adamw) {
  parallel.begin_step();
  ASSERT_TRUE(parallel.backward(model.output().square().mean(), MicroBatch::kLast));
  ASSERT_TRUE(parallel.finish());
  ASSERT_TRUE(adamw.step(1e-3));
}

TEST(UnitGathererTest, OnceLearnedEachUnitIsGatheredOnceInEachPassButThoseStillThere) {
  for (const int slots : {2, 3}) {
    on_two_ranks(
        slots, [&](const RankPlaces& places, Stack& model, DataParallel& parallel, AdamW& adamw) {
          for (int step = 0; step < 3; ++step) run_step(model, parallel, adamw);
          for (int step = 0; step < 3; ++step) {
            const int64_t before = gather_count(*places.groups.shard);
            run_step(model, parallel, adamw);
            // Forward all; backward those that the last of the forward pass have displaced.
            EXPECT_EQ(gather_count(*places.groups.shard) - before, kUnits + kUnits - slots);
          }
        });
  }
}

TEST(UnitGathererTest, ForwardPassesAloneGatherEachUnitOnce) {
  on_two_ranks(2, [](const RankPlaces& places, Stack& model, DataParallel&, AdamW&) {
    const c10::NoGradGuard no_grad;
    for (int pass = 0; pass < 3; ++pass) (void)model.output();
    const int64_t before = gather_count(*places.groups.shard);
    for (int pass = 0; pass < 4; ++pass) (void)model.output();
    EXPECT_LE(gather_count(*places.groups.shard) - before, 4 * kUnits + 4);
  });
}

TEST(UnitGathererTest, AnOperationOverMoreUnitsThanSlotsFindsThemAll) {
  on_two_ranks(2, [](const RankPlaces&, Stack& model, DataParallel& parallel, AdamW&) {
    const Stack reference;
    std::vector<at::Tensor> weights, expected;
    for (const models::Linear& layer : model.layers) weights.push_back(layer.weight.detach());
    for (const models::Linear& layer : reference.layers) expected.push_back(layer.weight.detach());
    EXPECT_TRUE(at::cat(weights).equal(at::cat(expected)));
    EXPECT_GE(parallel.memory().gathered_parameters,
              static_cast<size_t>(kUnits * kWidth * kWidth * 4));
  });
}

TEST(UnitGathererTest, ViewsOfParametersAreGatheredToo) {
  on_two_ranks(2, [](const RankPlaces&, Stack& model, DataParallel&, AdamW&) {
    const Stack reference;
    const at::Tensor row = model.layers[4].weight.detach()[7];
    const c10::NoGradGuard no_grad;
    (void)model.output();  // displaces it
    EXPECT_TRUE(row.equal(reference.layers[4].weight.detach()[7]));
  });
}

}  // namespace
}  // namespace yard::parallel
