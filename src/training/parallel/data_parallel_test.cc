// Ranks are threads. Each has its own copy of a small model; what the ranks compute together must
// equal what one process computes on the whole batch.
#include "parallel/data_parallel.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <functional>
#include <thread>

#include "collective/rendezvous.h"

namespace yard::parallel {
namespace {

uint16_t port_for(int test_index) {
  return static_cast<uint16_t>(20'000 + (getpid() * 8 + test_index) % 20'000);
}

// Runs `body` on `world_size` ranks, each a thread with a Group.
void on_ranks(int world_size, int test_index, const std::function<void(collective::Group&)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size; ++rank) {
    threads.emplace_back([&, rank] {
      collective::RendezvousOptions options;
      options.rank = rank;
      options.world_size = world_size;
      options.master_port = port_for(test_index);
      options.run_id = "data_parallel_test";
      auto group = collective::connect(options, StopToken());
      ASSERT_TRUE(group) << group.error().message;
      body(**group);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

at::Tensor values(at::IntArrayRef shape, int seed) {
  at::Tensor out = at::zeros(shape, at::kFloat);
  float* data = out.mutable_data_ptr<float>();
  for (int64_t i = 0; i < out.numel(); ++i) {
    data[i] = static_cast<float>(std::sin(0.7 * static_cast<double>(i) + seed));
  }
  return out;
}

// conv (channels-last weight) -> linear -> a parameter that is never used.
struct Model {
  at::Tensor conv = values({4, 3, 3, 3}, 1).contiguous(at::MemoryFormat::ChannelsLast);
  at::Tensor linear = values({16, 5}, 2);
  at::Tensor bias = values({5}, 3);
  at::Tensor unused = values({7}, 4);

  std::vector<at::Tensor> parameters() {
    std::vector<at::Tensor> all = {conv, linear, bias, unused};
    for (at::Tensor& p : all) p.set_requires_grad(true);
    return all;
  }
  at::Tensor loss(const at::Tensor& x) {
    const at::Tensor h = at::conv2d(x, conv).reshape({x.size(0), 16});
    return at::addmm(bias, at::tanh(h), linear).square().mean();
  }
};

at::Tensor batch_rows(int64_t begin, int64_t end) {
  return values({8, 3, 4, 4}, 5).slice(0, begin, end);
}

TEST(DataParallelTest, GradientsEqualThoseOfOneProcessOnTheWholeBatch) {
  Model reference;
  const auto expected = reference.parameters();
  reference.loss(batch_rows(0, 8)).backward();

  on_ranks(2, 0, [&](collective::Group& group) {
    Model model;
    const auto parameters = model.parameters();
    auto parallel = DataParallel::create(parameters, group, {.bucket_bytes = 64});
    ASSERT_TRUE(parallel) << parallel.error().message;
    for (int repeat = 0; repeat < 3; ++repeat) {
      (*parallel)->begin();
      // Two micro-batches of 2 per rank, each with half the weight.
      const int64_t first = group.rank() * 4;
      (model.loss(batch_rows(first, first + 2)) / 2).backward();
      (*parallel)->last_micro_batch();
      (model.loss(batch_rows(first + 2, first + 4)) / 2).backward();
      const Status done = (*parallel)->finish();
      ASSERT_TRUE(done) << done.error().message;
      for (size_t i = 0; i < 3; ++i) {
        EXPECT_TRUE(parameters[i].grad().allclose(expected[i].grad(), 1e-5, 1e-7)) << i;
        EXPECT_TRUE(
            (*parallel)->view_of(i, (*parallel)->flat_gradients()).equal(parameters[i].grad()));
      }
      EXPECT_EQ(parameters[3].grad().abs().sum().item<float>(), 0.0F);
    }
  });
}

TEST(DataParallelTest, ParametersKeepTheirValuesAndLiveInTheFlatBuffer) {
  auto group = collective::single_rank_group();
  Model model;
  const at::Tensor conv_before = model.conv.detach().clone();
  const auto parameters = model.parameters();
  auto parallel = DataParallel::create(parameters, *group, {});
  ASSERT_TRUE(parallel) << parallel.error().message;
  EXPECT_TRUE(model.conv.detach().equal(conv_before));
  EXPECT_TRUE(model.conv.is_contiguous(at::MemoryFormat::ChannelsLast));
  (*parallel)->flat_parameters().mul_(2);
  EXPECT_TRUE(model.conv.detach().equal(conv_before * 2));
}

TEST(DataParallelTest, BroadcastGivesEveryRankTheValuesOfRankZero) {
  on_ranks(3, 1, [&](collective::Group& group) {
    Model model;
    model.linear.mul_(static_cast<double>(group.rank() + 1));
    auto parallel = DataParallel::create(model.parameters(), group, {});
    ASSERT_TRUE(parallel) << parallel.error().message;
    ASSERT_TRUE((*parallel)->broadcast_parameters());
    EXPECT_TRUE(model.linear.detach().equal(values({16, 5}, 2)));
  });
}

TEST(DataParallelTest, ParameterThatIsNotF32IsRefused) {
  auto group = collective::single_rank_group();
  at::Tensor half = values({4}, 0).to(at::kBFloat16).set_requires_grad(true);
  auto parallel = DataParallel::create({half}, *group, {});
  ASSERT_FALSE(parallel);
  EXPECT_EQ(parallel.error().code, Code::kInvalidArgument);
}

}  // namespace
}  // namespace yard::parallel
