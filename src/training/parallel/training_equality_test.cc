// Training on many ranks, however the model is shared out, must equal training on one: 50 steps of
// AdamW with micro-batches and clipping, on a small transformer and a small UNet.
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <mutex>

#include "base/json.h"
#include "models/layers.h"
#include "models/unet_2d_condition.h"
#include "parallel/adamw.h"
#include "parallel/data_parallel.h"
#include "parallel/testing/rank_threads.h"

namespace yard::parallel {
namespace {

using models::NamedTensor;
using testing::on_grid;
using testing::RankGrid;
using testing::RankPlaces;
using testing::wave;

constexpr int kSteps = 50;
constexpr int kFewSteps = 15;        // where the step is the same in each
constexpr int64_t kBatch = 24;       // for 1, 2, 3 and 4 ranks
constexpr double kTolerance = 1e-6;  // relative, of the whole model
// About four units.
int64_t unit_bytes_of(bool unet) {
  return unet ? 64 << 10 : 16 << 10;
}

class TestModel {
 public:
  virtual ~TestModel() = default;
  virtual const std::vector<NamedTensor>& parameters() const = 0;
  // The mean over the samples [begin, end) of step `step`.
  virtual at::Tensor loss(int step, int64_t begin, int64_t end) const = 0;
};

// Two blocks of attention and a two-layer perceptron, each after a LayerNorm.
class SmallTransformer final : public TestModel {
 public:
  SmallTransformer() : list_(11) {
    const models::Scope root(list_);
    for (int64_t i = 0; i < 2; ++i) blocks_.emplace_back(root / "blocks" / i);
    out_.emplace(root / "out", kWidth, 3);
  }
  const std::vector<NamedTensor>& parameters() const override { return list_.all(); }
  at::Tensor loss(int step, int64_t begin, int64_t end) const override {
    at::Tensor h = wave({kBatch, 5, kWidth}, step % 7).slice(0, begin, end);
    h = h.to(out_->weight.scalar_type());
    for (const Block& block : blocks_) h = block(h);
    const at::Tensor out = (*out_)(h).to(at::kFloat);
    return (out - wave({kBatch, 5, 3}, 3 + step % 7).slice(0, begin, end)).square().mean();
  }

 private:
  static constexpr int64_t kWidth = 24;
  struct Block {
    explicit Block(const models::Scope& scope)
        : norm1(scope / "norm1", kWidth, 1e-5),
          q(scope / "q", kWidth, kWidth, false),
          k(scope / "k", kWidth, kWidth, false),
          v(scope / "v", kWidth, kWidth, false),
          norm2(scope / "norm2", kWidth, 1e-5),
          up(scope / "up", kWidth, 4 * kWidth),
          down(scope / "down", 4 * kWidth, kWidth) {}
    at::Tensor operator()(const at::Tensor& x) const {
      const at::Tensor n = norm1(x);
      const at::Tensor h = x + models::attention(q(n), k(n), v(n), 3).to(x.scalar_type());
      return h + down(at::gelu(up(norm2(h))));
    }
    models::LayerNorm norm1;
    models::Linear q, k, v;
    models::LayerNorm norm2;
    models::Linear up, down;
  };
  models::ParameterList list_;
  std::vector<Block> blocks_;
  std::optional<models::Linear> out_;
};

class SmallUNet final : public TestModel {
 public:
  SmallUNet()
      : unet_(*models::UNetConfig::parse(
                  {{"in_channels", 2},
                   {"out_channels", 2},
                   {"block_out_channels", {8, 16}},
                   {"norm_num_groups", 4},
                   {"down_block_types", {"DownBlock2D", "CrossAttnDownBlock2D"}},
                   {"up_block_types", {"CrossAttnUpBlock2D", "UpBlock2D"}},
                   {"layers_per_block", 1},
                   {"cross_attention_dim", 8},
                   {"attention_head_dim", 2}},
                  "unet"),
              7) {}
  const std::vector<NamedTensor>& parameters() const override { return unet_.parameters(); }
  at::Tensor loss(int step, int64_t begin, int64_t end) const override {
    const auto part = [&](at::IntArrayRef shape, int seed) {
      return wave(shape, seed + step % 5).slice(0, begin, end);
    };
    const at::Tensor timesteps = (part({kBatch}, 1) + 1) * 400;
    const at::Tensor out =
        unet_.forward(part({kBatch, 2, 4, 4}, 2), timesteps, part({kBatch, 3, 8}, 3));
    return (out - part({kBatch, 2, 4, 4}, 4)).square().mean();
  }

 private:
  models::UNet2DConditionModel unet_;
};

std::unique_ptr<TestModel> make_model(bool unet) {
  if (unet) return std::make_unique<SmallUNet>();
  return std::make_unique<SmallTransformer>();
}

struct Trained {
  std::vector<NamedTensor> weights;
  std::vector<double> norms;
};

Result<Trained> train_rank(const TestModel& model, const RankPlaces& places, int world_size,
                           const DataParallelOptions& options, int64_t micro_batches,
                           int steps = kSteps) {
  for (const NamedTensor& p : model.parameters()) p.tensor.set_requires_grad(true);
  YARD_ASSIGN(const auto parallel,
              DataParallel::create(model.parameters(), places.groups, options));
  // Half of the steps are clipped at this norm. eps keeps noise out of values without a gradient.
  YARD_ASSIGN(const auto adamw, AdamW::create(*parallel, {.eps = 1e-4, .clip = 0.5}));
  Trained trained;
  const int64_t share = kBatch / world_size, count = share / micro_batches;
  for (int step = 0; step < steps; ++step) {
    parallel->begin_step();
    for (int64_t m = 0; m < micro_batches; ++m) {
      const int64_t begin = places.rank * share + m * count;
      const at::Tensor loss =
          model.loss(step, begin, begin + count) / static_cast<double>(micro_batches);
      YARD_TRY(parallel->backward(
          loss, m + 1 < micro_batches ? MicroBatch::kMoreToCome : MicroBatch::kLast));
    }
    YARD_TRY(parallel->finish());
    YARD_ASSIGN(const double norm, adamw->step(3e-3));
    trained.norms.push_back(norm);
  }
  YARD_ASSIGN(trained.weights, parallel->gather("", {}, true));
  return trained;
}

// What one rank makes of the whole batch at once, for each model.
const Trained& reference(bool unet) {
  static std::map<bool, Trained> made;
  if (!made.contains(unet)) {
    auto trained = train_rank(*make_model(unet), {}, 1, {.unit_bytes = unit_bytes_of(unet)}, 1);
    EXPECT_TRUE(trained) << trained.error().message;
    made.emplace(unet, *std::move(trained));
  }
  return made.at(unet);
}

// |a - b| / |b| over all tensors as one vector.
double relative_distance(const std::vector<NamedTensor>& a, const std::vector<NamedTensor>& b) {
  double difference = 0, whole = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const at::Tensor x = a[i].tensor.to(at::kDouble), y = b[i].tensor.to(at::kDouble);
    difference += (x - y).square().sum().item<double>();
    whole += y.square().sum().item<double>();
  }
  return std::sqrt(difference / whole);
}

using Case = std::tuple<bool, RankGrid>;

class TrainingEqualityTest : public ::testing::TestWithParam<Case> {
 protected:
  bool unet() const { return std::get<0>(GetParam()); }
  const RankGrid& grid() const { return std::get<1>(GetParam()); }

  // What each rank ends with.
  std::vector<Trained> train(DataParallelOptions options, int64_t micro_batches,
                             int steps = kSteps) {
    options.sharding = grid().sharding;
    options.unit_bytes = unit_bytes_of(unet());
    std::vector<Trained> all(static_cast<size_t>(grid().world_size));
    on_grid(grid(), [&](const RankPlaces& places) {
      const auto model = make_model(unet());
      auto trained = train_rank(*model, places, grid().world_size, options, micro_batches, steps);
      ASSERT_TRUE(trained) << trained.error().message;
      all[static_cast<size_t>(places.rank)] = *std::move(trained);
    });
    return all;
  }

  void expect_equal_to_one_rank(const std::vector<Trained>& all) {
    const Trained& expected = reference(unet());
    for (const Trained& trained : all) {
      ASSERT_EQ(trained.weights.size(), expected.weights.size());
      EXPECT_LE(relative_distance(trained.weights, expected.weights), kTolerance);
      ASSERT_EQ(trained.norms.size(), expected.norms.size());
      EXPECT_EQ(trained.norms, all[0].norms);
      EXPECT_NEAR(trained.norms[0], expected.norms[0], kTolerance * expected.norms[0]);
    }
  }
};

std::string name_of(const ::testing::TestParamInfo<Case>& info) {
  return (std::get<0>(info.param) ? "UNet" : "Transformer") +
         testing::to_string(std::get<1>(info.param));
}

INSTANTIATE_TEST_SUITE_P(Transformer, TrainingEqualityTest,
                         ::testing::Values(Case{false, {3, 1, Sharding::kNone}},
                                           Case{false, {4, 4, Sharding::kOptimizer}},
                                           Case{false, {3, 3, Sharding::kGradients}},
                                           Case{false, {2, 2, Sharding::kParameters}},
                                           Case{false, {3, 3, Sharding::kParameters}},
                                           Case{false, {4, 2, Sharding::kParameters}}),
                         name_of);
INSTANTIATE_TEST_SUITE_P(UNet, TrainingEqualityTest,
                         ::testing::Values(Case{true, {2, 1, Sharding::kNone}},
                                           Case{true, {2, 2, Sharding::kOptimizer}},
                                           Case{true, {2, 2, Sharding::kGradients}},
                                           Case{true, {3, 3, Sharding::kParameters}},
                                           Case{true, {4, 2, Sharding::kParameters}}),
                         name_of);

TEST_P(TrainingEqualityTest, FiftyStepsEqualOneRanks) {
  // With micro-batches where a step is cheap.
  if (unet()) {
    expect_equal_to_one_rank(train({}, 1));
    return;
  }
  expect_equal_to_one_rank(train({}, 2));
  // The others have no other way.
  if (grid().sharding >= Sharding::kGradients)
    expect_equal_to_one_rank(train({.accumulation = Accumulation::kWhole}, 2));
}

class TransformerTrainingTest : public TrainingEqualityTest {};

INSTANTIATE_TEST_SUITE_P(Transformer, TransformerTrainingTest,
                         ::testing::Values(Case{false, {3, 1, Sharding::kNone}},
                                           Case{false, {2, 2, Sharding::kGradients}},
                                           Case{false, {3, 3, Sharding::kParameters}}),
                         name_of);

TEST_P(TransformerTrainingTest, ARerunGivesTheSameBits) {
  const auto first = train({}, 2, kFewSteps), second = train({}, 2, kFewSteps);
  EXPECT_EQ(first[0].norms, second[0].norms);
  for (size_t i = 0; i < first[0].weights.size(); ++i)
    EXPECT_TRUE(first[0].weights[i].tensor.equal(second[0].weights[i].tensor)) << i;
}

TEST_P(TransformerTrainingTest, Bf16ParametersStayNearF32) {
  for (const bool stochastic : {false, true}) {
    const auto all =
        train({.compute_dtype = at::kBFloat16, .stochastic_rounding = stochastic, .seed = 3}, 1);
    for (const Trained& trained : all) {
      EXPECT_EQ(trained.norms, all[0].norms);
      EXPECT_LE(relative_distance(trained.weights, reference(false).weights), 0.05);
    }
  }
}

}  // namespace
}  // namespace yard::parallel
