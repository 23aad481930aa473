#include "loop/trainee.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>

#include "tensor/host_tensor.h"

namespace yard::loop {
namespace {

// Two parameters, 3 and 2 values, and a quadratic loss.
class TraineeTest : public testing::Test {
 protected:
  void SetUp() override { make({}, {.decay = 0}); }

  void make(const OptimizerRecipe& optimizer, const EmaRecipe& ema) {
    trainee_.reset();
    weight_ = tensor::copy_of(std::span<const float>(std::vector<float>{1, -2, 3}), {3});
    bias_ = tensor::copy_of(std::span<const float>(std::vector<float>{0.5, 4}), {2});
    weight_.set_requires_grad(true);
    bias_.set_requires_grad(true);
    auto made = Trainee::create({{"weight", weight_}, {"bias", bias_}}, {},
                                {.optimizer = optimizer, .ema = ema, .parallel = {}});
    ASSERT_TRUE(made) << made.error().message;
    trainee_ = *std::move(made);
  }

  double step(double learning_rate) {
    return step_on((weight_ * weight_).sum() + (bias_ * bias_).sum(), learning_rate);
  }

  double step_on(const at::Tensor& loss, double learning_rate) {
    trainee_->gradients().begin_step();
    EXPECT_TRUE(trainee_->gradients().backward(loss, parallel::MicroBatch::kLast));
    EXPECT_TRUE(trainee_->gradients().finish());
    return *trainee_->step(learning_rate);
  }

  at::Tensor weight_, bias_;
  std::unique_ptr<Trainee> trainee_;
};

// AdamW in a few lines of double precision.
struct Reference {
  double value, m = 0, v = 0;
  void step(double gradient, int t, double lr, const OptimizerRecipe& o) {
    value *= 1 - lr * o.weight_decay;
    m = o.beta1 * m + (1 - o.beta1) * gradient;
    v = o.beta2 * v + (1 - o.beta2) * gradient * gradient;
    value -=
        lr * (m / (1 - std::pow(o.beta1, t))) / (std::sqrt(v / (1 - std::pow(o.beta2, t))) + o.eps);
  }
};

TEST_F(TraineeTest, StepsAreAdamWsWithTheWholeGradientClipped) {
  const OptimizerRecipe recipe{
      .beta1 = 0.8, .beta2 = 0.9, .eps = 1e-6, .weight_decay = 0.1, .clip = 2};
  make(recipe, {.decay = 0});
  std::vector<Reference> reference = {{1}, {-2}, {3}, {0.5}, {4}};
  for (int t = 1; t <= 5; ++t) {
    double squares = 0;
    for (const Reference& r : reference) squares += 4 * r.value * r.value;
    const double norm = std::sqrt(squares);
    EXPECT_NEAR(step(0.1), norm, 1e-4);
    for (Reference& r : reference)
      r.step(2 * r.value * std::min(1.0, 2 / (norm + 1e-6)), t, 0.1, recipe);
  }
  for (int i = 0; i < 3; ++i) EXPECT_NEAR(weight_[i].item<double>(), reference[i].value, 1e-5);
  for (int i = 0; i < 2; ++i) EXPECT_NEAR(bias_[i].item<double>(), reference[3 + i].value, 1e-5);
}

TEST_F(TraineeTest, AverageFollowsTheWeightsAndIsLentForALook) {
  make({}, {.decay = 0.999});
  const double before = weight_[0].item<double>();
  step(0.1);
  const double after = weight_[0].item<double>();
  {
    const Trainee::AveragedWeights averaged(*trainee_);
    const double decay = 2.0 / 11;  // (1 + n) / (10 + n) after one update
    EXPECT_NEAR(weight_[0].item<double>(), decay * before + (1 - decay) * after, 1e-6);
  }
  EXPECT_EQ(weight_[0].item<double>(), after);
  ASSERT_TRUE(trainee_->keep_average());
  EXPECT_NE(weight_[0].item<double>(), after);
}

TEST_F(TraineeTest, WeightsOnDiskAreThoseOfNowAndLeaveNoFile) {
  step(0.1);
  const std::string folder = testing::TempDir() + "weights-" + std::to_string(::getpid());
  EXPECT_EQ(trainee_->weights_on_disk(folder, true).error().code, Code::kNotFound);
  EXPECT_TRUE(trainee_->weights_on_disk(folder, false)->empty());
  std::filesystem::create_directory(folder);
  const auto weights = trainee_->weights_on_disk(folder, true);
  ASSERT_TRUE(weights) << weights.error().message;
  EXPECT_TRUE(std::filesystem::is_empty(folder));
  const at::Tensor then = weight_.detach().clone();
  step(0.1);
  ASSERT_EQ(weights->size(), 2u);
  EXPECT_EQ((*weights)[1].name, "bias");
  EXPECT_TRUE(at::equal((*weights)[0].tensor, then));
  std::filesystem::remove_all(folder);
}

TEST_F(TraineeTest, BeforeItsStartTheAverageEqualsTheWeights) {
  make({}, {.decay = 0.9, .start_step = 5});
  step(0.1);
  const at::Tensor trained = weight_.detach().clone();
  const Trainee::AveragedWeights averaged(*trainee_);
  EXPECT_TRUE(at::equal(weight_.detach(), trained));
}

TEST_F(TraineeTest, ALateAverageWarmsUpFromItsOwnBegin) {
  make({}, {.decay = 0.999, .start_step = 2});
  step(0.1);
  step(0.1);
  EXPECT_EQ(trainee_->progress().average_begin, 2);
  const double before = weight_[0].item<double>();
  step(0.1);
  const double after = weight_[0].item<double>();
  const Trainee::AveragedWeights averaged(*trainee_);
  const double decay = 2.0 / 11;  // of the first update
  EXPECT_NEAR(weight_[0].item<double>(), decay * before + (1 - decay) * after, 1e-6);
}

TEST_F(TraineeTest, AnAverageThatMovesEverySecondStepDecaysAsMuch) {
  make({}, {.decay = 0.9, .update_every = 2, .warm_up = false});
  const double before = weight_[0].item<double>();
  step(0.1);
  {
    const Trainee::AveragedWeights averaged(*trainee_);
    EXPECT_NEAR(weight_[0].item<double>(), before, 1e-7);
  }
  step(0.1);
  const double after = weight_[0].item<double>();
  const Trainee::AveragedWeights averaged(*trainee_);
  EXPECT_NEAR(weight_[0].item<double>(), 0.81 * before + 0.19 * after, 1e-6);
}

TEST_F(TraineeTest, AStageMayStopAndBeginTheAverage) {
  make({}, {.decay = 0.9, .warm_up = false});
  step(0.1);
  trainee_->set_average({.decay = 0});
  step(0.1);
  const double begin = weight_[0].item<double>();
  EXPECT_EQ(trainee_->progress().average_begin, 2);
  trainee_->set_average({.decay = 0.5, .warm_up = false});
  step(0.1);
  const double after = weight_[0].item<double>();
  const Trainee::AveragedWeights averaged(*trainee_);
  EXPECT_NEAR(weight_[0].item<double>(), (begin + after) / 2, 1e-6);
}

TEST_F(TraineeTest, ANonFiniteGradientChangesNothing) {
  const at::Tensor before = weight_.detach().clone();
  EXPECT_FALSE(std::isfinite(step_on(weight_.sum() * std::nan(""), 0.1)));
  EXPECT_TRUE(at::equal(weight_.detach(), before));
  EXPECT_EQ(trainee_->step_count(), 0);
}

// The values of every piece, as they are now.
std::vector<at::Tensor> values_of(const TraineeState& state) {
  std::vector<at::Tensor> out;
  for (const parallel::ShardedTensor& tensor : state.tensors)
    for (const parallel::TensorPiece& piece : tensor.pieces) out.push_back(piece.values.clone());
  return out;
}

void set_values(const std::vector<parallel::ShardedTensor>& tensors,
                const std::vector<at::Tensor>& values) {
  c10::NoGradGuard no_grad;
  size_t next = 0;
  for (const parallel::ShardedTensor& tensor : tensors)
    for (const parallel::TensorPiece& piece : tensor.pieces)
      at::Tensor(piece.values).copy_(values[next++]);
}

TEST_F(TraineeTest, RestoredStateGoesOnBitForBit) {
  for (const auto kind : {OptimizerKind::kAdamW, OptimizerKind::kAdamW8bit}) {
    make({.kind = kind}, {.decay = 0.9});
    step(0.1);
    const std::vector<at::Tensor> values = values_of(*trainee_->state());
    step(0.1);
    const at::Tensor expected = weight_.detach().clone();
    const std::vector<at::Tensor> expected_state = values_of(*trainee_->state());
    make({.kind = kind}, {.decay = 0.9});
    const TraineeState state = *trainee_->state();
    set_values(state.tensors, values);
    ASSERT_TRUE(trainee_->restored(state, {1, 0}));
    step(0.1);
    EXPECT_TRUE(at::equal(weight_.detach(), expected));
    const std::vector<at::Tensor> got = values_of(*trainee_->state());
    for (size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(at::equal(got[i], expected_state[i])) << i;
  }
}

TEST_F(TraineeTest, RestoredWeightsAreAStartOfTheAverageToo) {
  make({}, {.decay = 0.9});
  step(0.1);
  std::vector<at::Tensor> values = {at::full({3}, 7.0), at::full({2}, 8.0)};
  set_values(trainee_->sharded_weights(), values);
  ASSERT_TRUE(trainee_->weights_restored());
  EXPECT_EQ(trainee_->step_count(), 0);
  const Trainee::AveragedWeights averaged(*trainee_);
  EXPECT_TRUE(at::equal(weight_.detach(), values[0]));
  EXPECT_TRUE(at::equal(bias_.detach(), values[1]));
}

TEST_F(TraineeTest, StateIsNamedAsInCheckpoints) {
  std::string names;
  const TraineeState state = *trainee_->state();
  for (const parallel::ShardedTensor& tensor : state.tensors) names += tensor.name + " ";
  EXPECT_EQ(names,
            "weight bias exp_avg.weight exp_avg.bias exp_avg_sq.weight exp_avg_sq.bias ema.weight "
            "ema.bias ");
}

}  // namespace
}  // namespace yard::loop
