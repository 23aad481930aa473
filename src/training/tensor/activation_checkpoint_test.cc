#include "tensor/activation_checkpoint.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tanh.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include "tensor/autocast.h"

namespace yard::tensor {
namespace {

void set_seed(uint64_t seed) {
  at::Generator generator = at::globalContext().defaultGenerator(at::kCPU);
  generator.set_current_seed(seed);
}

double relative_distance(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).norm().item<double>() / b.norm().item<double>();
}

class GradientSummed final : public torch::autograd::PostAccumulateGradHook {
 public:
  explicit GradientSummed(std::function<void()> told) : told_(std::move(told)) {}
  void operator()(const torch::autograd::Variable&) override { told_(); }

 private:
  std::function<void()> told_;
};

// tanh(x w) w with dropout, where `w` is used outside of it too.
struct Model {
  at::Tensor x = (set_seed(3), at::randn({4, 8})).set_requires_grad(true);
  at::Tensor w = at::randn({8, 8}).set_requires_grad(true);
  mutable int call_count = 0;

  at::Tensor segment(const at::Tensor& in) const {
    ++call_count;
    return at::linear(at::dropout(at::tanh(at::linear(in, w)), 0.5, /*train=*/true), w);
  }
  at::Tensor loss(Activations activations) const {
    const auto forward = [this](const std::vector<at::Tensor>& in) { return segment(in[0]); };
    const at::Tensor h =
        activations == Activations::kKept ? segment(x) : checkpointed(forward, {x}, {w});
    return (at::linear(h, w) * x).square().sum();
  }
};

class ActivationCheckpointTest : public testing::Test {
 protected:
  Model model_;
  // The loss and both gradients, from the same random numbers.
  std::vector<at::Tensor> run(Activations activations) {
    set_seed(9);
    model_.x.mutable_grad().reset();
    model_.w.mutable_grad().reset();
    const at::Tensor loss = model_.loss(activations);
    loss.backward();
    return {loss.detach(), model_.x.grad().clone(), model_.w.grad().clone(), at::randn({3})};
  }
};

TEST_F(ActivationCheckpointTest, LossGradientsAndLaterRandomNumbersAreTheSameBits) {
  const auto kept = run(Activations::kKept), recomputed = run(Activations::kRecomputed);
  EXPECT_TRUE(kept[0].equal(recomputed[0]));
  for (const size_t gradient : {1, 2})
    EXPECT_LE(relative_distance(recomputed[gradient], kept[gradient]), 1e-6);
  EXPECT_TRUE(kept[3].equal(recomputed[3]));
}

TEST_F(ActivationCheckpointTest, TheSegmentIsComputedAgainInTheBackwardPass) {
  const at::Tensor loss = model_.loss(Activations::kRecomputed);
  EXPECT_EQ(model_.call_count, 1);
  loss.backward();
  EXPECT_EQ(model_.call_count, 2);
}

TEST_F(ActivationCheckpointTest, EachLeafsGradientComesOnceWithAllItsUses) {
  int sum_count = 0;
  torch::autograd::impl::set_post_acc_grad_hooks(
      model_.w, std::make_unique<GradientSummed>([&] { ++sum_count; }));
  model_.loss(Activations::kRecomputed).backward();
  EXPECT_EQ(sum_count, 1);
}

TEST_F(ActivationCheckpointTest, Bf16AutocastIsThatOfTheFirstTime) {
  at::Tensor kept, recomputed;
  for (const Activations activations : {Activations::kKept, Activations::kRecomputed}) {
    set_seed(9);
    model_.w.mutable_grad().reset();
    at::Tensor loss;
    {
      const Autocast autocast(at::kCPU, true);
      loss = model_.loss(activations);
    }
    loss.backward();
    (activations == Activations::kKept ? kept : recomputed) = model_.w.grad().clone();
  }
  EXPECT_LE(relative_distance(recomputed, kept), 0.02);
}

TEST_F(ActivationCheckpointTest, WithoutAGradientNothingIsKept) {
  const c10::NoGradGuard no_grad;
  EXPECT_FALSE(model_.loss(Activations::kRecomputed).requires_grad());
}

TEST_F(ActivationCheckpointTest, AnInputChangedInPlaceMeanwhileIsAnError) {
  const at::Tensor h = model_.x * 1;
  const auto forward = [&](const std::vector<at::Tensor>& in) { return model_.segment(in[0]); };
  const at::Tensor loss = checkpointed(forward, {h}, {model_.w}).sum();
  {
    const c10::NoGradGuard no_grad;
    h.add_(1);
  }
  EXPECT_THROW(loss.backward(), c10::Error);
}

}  // namespace
}  // namespace yard::tensor
