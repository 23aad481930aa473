#include "loop/optimizer.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <cmath>

#include "loop/dynamic_code.h"
#include "tensor/host_tensor.h"
#include "tensor/normal.h"

namespace yard::loop {
namespace {

TEST(DynamicCodeTest, NearestIsTheNearest) {
  for (const bool is_signed : {false, true}) {
    const DynamicCode code(is_signed);
    for (int i = 0; i < 20'000; ++i) {
      const double u = tensor::draw_uniform({.seed = 1, .sample = static_cast<uint64_t>(i)});
      const double sign = is_signed && i % 2 == 0 ? -1 : 1;
      const auto x = static_cast<float>(sign * std::pow(10.0, -8 * u));
      float best = 2;
      for (int c = 0; c < 256; ++c)
        best = std::min(best, std::abs(code.value(static_cast<uint8_t>(c)) - x));
      EXPECT_FLOAT_EQ(std::abs(code.value(code.nearest(x)) - x), best) << x;
    }
  }
}

TEST(DynamicCodeTest, EndsAndZeroAreExactAndReadNumbersKeepTheirCode) {
  const DynamicCode with_sign(true), without(false);
  EXPECT_EQ(with_sign.value(with_sign.nearest(-1)), -1);
  EXPECT_EQ(with_sign.value(with_sign.nearest(1)), 1);
  EXPECT_EQ(with_sign.value(with_sign.nearest(0)), 0);
  EXPECT_EQ(without.value(without.nearest(1)), 1);
  EXPECT_EQ(without.value(without.nearest(0)), 0);
  for (int c = 0; c < 255; ++c) {
    const auto byte = static_cast<uint8_t>(c);
    EXPECT_EQ(with_sign.nearest(with_sign.value(byte)), byte);
    EXPECT_EQ(without.nearest(without.value(byte)), byte);
  }
}

// Parameters of 700 values (more than two blocks) and 3, drawn towards fixed numbers.
class OptimizerTest : public testing::Test {
 protected:
  void make(const OptimizerRecipe& recipe) {
    optimizer_.reset();
    parallel_.reset();
    large_ = normal(1, 700).set_requires_grad(true);
    small_ = normal(2, 3).set_requires_grad(true);
    parallel_ = *parallel::DataParallel::create({{"large", large_}, {"small", small_}}, {}, {});
    optimizer_ = *Optimizer::create(*parallel_, recipe, /*offload=*/false);
  }

  static at::Tensor normal(uint64_t sample, int64_t count) {
    at::Tensor out = at::zeros({count});
    tensor::fill_normal({.seed = 9, .sample = sample}, tensor::floats_of(out));
    return out;
  }

  double step(double learning_rate) {
    const at::Tensor loss =
        ((large_ - normal(3, 700)).square() * (normal(4, 700).abs() + 0.1)).sum() +
        (small_ - normal(5, 3)).square().sum();
    parallel_->begin_step();
    EXPECT_TRUE(parallel_->backward(loss, parallel::MicroBatch::kLast));
    EXPECT_TRUE(parallel_->finish());
    EXPECT_TRUE(std::isfinite(*optimizer_->step(learning_rate)));
    return loss.item<double>();
  }

  at::Tensor weights() const { return at::cat({large_.detach(), small_.detach()}); }

  at::Tensor large_, small_;
  std::unique_ptr<parallel::DataParallel> parallel_;
  std::unique_ptr<Optimizer> optimizer_;
};

TEST_F(OptimizerTest, SgdIsPyTorchsWithMomentumDecayAndClipping) {
  for (const bool nesterov : {false, true}) {
    make({.kind = OptimizerKind::kSgd,
          .momentum = 0.9,
          .nesterov = nesterov,
          .weight_decay = 0.05,
          .clip = 5});
    std::vector<double> value, buffer(703), target, scale;
    for (int i = 0; i < 700; ++i) {
      value.push_back(large_[i].item<double>());
      target.push_back(normal(3, 700)[i].item<double>());
      scale.push_back(std::abs(normal(4, 700)[i].item<double>()) + 0.1);
    }
    for (int i = 0; i < 3; ++i) {
      value.push_back(small_[i].item<double>());
      target.push_back(normal(5, 3)[i].item<double>());
      scale.push_back(1);
    }
    for (int t = 0; t < 4; ++t) {
      std::vector<double> gradient;
      double squares = 0;
      for (size_t i = 0; i < value.size(); ++i) {
        gradient.push_back(2 * scale[i] * (value[i] - target[i]));
        squares += gradient[i] * gradient[i];
      }
      const double cut = std::min(1.0, 5 / (std::sqrt(squares) + 1e-6));
      for (size_t i = 0; i < value.size(); ++i) {
        const double g = gradient[i] * cut + 0.05 * value[i];
        buffer[i] = 0.9 * buffer[i] + g;
        value[i] -= 0.1 * (nesterov ? g + 0.9 * buffer[i] : buffer[i]);
      }
      step(0.1);
    }
    const at::Tensor got = weights();
    for (int i = 0; i < 703; ++i)
      ASSERT_NEAR(got[i].item<double>(), value[static_cast<size_t>(i)], 1e-5) << i;
  }
}

TEST_F(OptimizerTest, EightBitMomentsStayNearThoseOfF32AndLearnAsWell) {
  make({.clip = 0});
  for (int t = 0; t < 60; ++t) step(0.05);
  const at::Tensor exact = weights();
  const double exact_loss = step(0);
  make({.kind = OptimizerKind::kAdamW8bit, .clip = 0});
  const double first_loss = step(0.05);
  for (int t = 1; t < 60; ++t) step(0.05);
  EXPECT_LT((weights() - exact).abs().mean().item<double>(), 0.05);
  EXPECT_NEAR(step(0), exact_loss, 0.02 * first_loss);
}

TEST_F(OptimizerTest, EightBitMomentsTakeAQuarterOfTheMemory) {
  make({});
  const size_t whole = optimizer_->state_bytes();
  make({.kind = OptimizerKind::kAdamW8bit});
  EXPECT_LT(optimizer_->state_bytes(), whole * 27 / 100);
}

TEST_F(OptimizerTest, EveryKindGoesOnBitForBitFromItsState) {
  for (const OptimizerKind kind :
       {OptimizerKind::kAdamW, OptimizerKind::kAdamW8bit, OptimizerKind::kSgd}) {
    const OptimizerRecipe recipe{.kind = kind, .clip = 1};
    make(recipe);
    for (int t = 0; t < 7; ++t) step(0.01);
    const at::Tensor then = weights();
    std::vector<at::Tensor> saved;
    const std::vector<OptimizerState> states = *optimizer_->state();
    for (const OptimizerState& s : states) saved.push_back(s.values.clone());
    for (int t = 0; t < 3; ++t) step(0.01);
    const at::Tensor expected = weights();
    make(recipe);
    {
      c10::NoGradGuard no_grad;
      large_.copy_(then.narrow(0, 0, 700));
      small_.copy_(then.narrow(0, 700, 3));
    }
    auto state = *optimizer_->state();
    for (size_t i = 0; i < state.size(); ++i) state[i].values.copy_(saved[i]);
    ASSERT_TRUE(optimizer_->restored(state, 7));
    for (int t = 0; t < 3; ++t) step(0.01);
    EXPECT_TRUE(at::equal(weights(), expected)) << static_cast<int>(kind);
  }
}

TEST_F(OptimizerTest, AGradientThatIsNoNumberChangesNothing) {
  for (const OptimizerKind kind : {OptimizerKind::kAdamW8bit, OptimizerKind::kSgd}) {
    make({.kind = kind});
    step(0.1);
    const at::Tensor before = weights();
    parallel_->begin_step();
    ASSERT_TRUE(parallel_->backward(large_.sum() * std::nan(""), parallel::MicroBatch::kLast));
    ASSERT_TRUE(parallel_->finish());
    EXPECT_FALSE(std::isfinite(*optimizer_->step(0.1)));
    EXPECT_TRUE(at::equal(weights(), before));
    EXPECT_EQ(optimizer_->step_count(), 1);
  }
}

}  // namespace
}  // namespace yard::loop
