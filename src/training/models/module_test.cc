#include "models/module.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <cmath>

#include "models/layers.h"

namespace yard::models {
namespace {

std::vector<float> values_of(const at::Tensor& t) {
  const at::Tensor flat = t.detach().contiguous();
  return {flat.const_data_ptr<float>(), flat.const_data_ptr<float>() + flat.numel()};
}

struct Moments {
  double mean = 0, deviation = 0, largest = 0;
};
Moments moments_of(const at::Tensor& t) {
  Moments m;
  const std::vector<float> values = values_of(t);
  for (const float v : values) {
    m.mean += v;
    m.deviation += double{v} * v;
    m.largest = std::max(m.largest, std::abs(double{v}));
  }
  m.mean /= static_cast<double>(values.size());
  m.deviation = std::sqrt(m.deviation / static_cast<double>(values.size()) - m.mean * m.mean);
  return m;
}

TEST(ParameterListTest, ValuesDependOnSeedAndNameAlone) {
  ParameterList one(7), other(7), third(8);
  const auto a = values_of(one.add("a", {3, 5}, Init::kNormal, 1));
  other.add("before", {100}, Init::kNormal, 1);
  EXPECT_EQ(values_of(other.add("a", {15}, Init::kNormal, 1)), a);
  EXPECT_NE(values_of(other.add("b", {15}, Init::kNormal, 1)), a);
  EXPECT_NE(values_of(third.add("a", {15}, Init::kNormal, 1)), a);
}

TEST(ParameterListTest, UniformStartIsPyTorchs) {
  ParameterList list(1);
  // torch.nn.Linear: kaiming_uniform_(a=sqrt(5)) comes to U(-1/sqrt(fan_in), 1/sqrt(fan_in)).
  const Moments m = moments_of(list.add("w", {400, 250}, Init::kUniformFanIn, 250));
  const double bound = 1 / std::sqrt(250.0);
  EXPECT_LE(m.largest, bound);
  EXPECT_GT(m.largest, 0.999 * bound);
  EXPECT_NEAR(m.mean, 0, bound * 0.01);
  EXPECT_NEAR(m.deviation, bound / std::sqrt(3.0), bound * 0.01);
}

TEST(ParameterListTest, NormalStartHasTheGivenDeviation) {
  ParameterList list(1);
  const Moments m = moments_of(list.add("w", {100'000}, Init::kNormal, 0.02));
  EXPECT_NEAR(m.mean, 0, 0.0003);
  EXPECT_NEAR(m.deviation, 0.02, 0.0003);
}

TEST(ParameterListTest, OrthogonalStartKeepsLengths) {
  ParameterList list(1);
  const at::Tensor wide = list.add("wide", {6, 5, 3, 3}, Init::kOrthogonal).flatten(1);
  const at::Tensor tall = list.add("tall", {20, 7}, Init::kOrthogonal);
  EXPECT_LT((wide.mm(wide.t()) - at::eye(6)).abs().max().item<double>(), 1e-6);
  EXPECT_LT((tall.t().mm(tall) - at::eye(7)).abs().max().item<double>(), 1e-6);
}

TEST(ParameterListTest, RestartChangesOnlyWhatTheRuleNames) {
  ParameterList list(1);
  list.add("a", {10}, Init::kNormal);
  list.add("b", {10}, Init::kNormal);
  const auto before = values_of(list.all()[1].tensor);
  list.restart([](const NamedTensor& p) -> std::optional<Init> {
    if (p.name == "a") return Init::kZeros;
    return {};
  });
  EXPECT_EQ(values_of(list.all()[0].tensor), std::vector<float>(10, 0.0F));
  EXPECT_EQ(values_of(list.all()[1].tensor), before);
}

TEST(ParameterListTest, StartStaysTheSameBetweenReleases) {
  ParameterList list(42);
  const auto uniform = values_of(list.add("conv_in.weight", {5}, Init::kUniformFanIn, 4));
  const auto normal = values_of(list.add("token.weight", {5}, Init::kNormal, 1));
  EXPECT_FLOAT_EQ(uniform[0], 0.13932568F);
  EXPECT_FLOAT_EQ(uniform[4], -0.46989214F);
  EXPECT_NEAR(normal[0], 0.24865325, 1e-6);
  EXPECT_NEAR(normal[4], -0.70691442, 1e-6);
}

TEST(ScopeTest, NamesAreDottedPathsInOrderOfRegistration) {
  ParameterList list(0);
  const Scope root(list);
  const Conv2d conv(root / "down_blocks" / 1 / "conv", 2, 3, 3);
  const Linear linear(root / "proj", 4, 5, false);
  ASSERT_EQ(list.all().size(), 3U);
  EXPECT_EQ(list.all()[0].name, "down_blocks.1.conv.weight");
  EXPECT_EQ(list.all()[1].name, "down_blocks.1.conv.bias");
  EXPECT_EQ(list.all()[2].name, "proj.weight");
  EXPECT_EQ(parameter_count(list.all()), 2 * 3 * 9 + 3 + 4 * 5);
}

TEST(MoveParametersTest, LayersComputeWithTheMovedValues) {
  ParameterList list(3);
  const Linear linear(Scope(list) / "l", 4, 2);
  const at::Tensor x = at::ones({1, 4});
  const at::Tensor before = linear(x);
  set_requires_grad(list.all(), true);
  move_parameters(list.all(), at::kCPU, at::kDouble);
  EXPECT_EQ(linear.weight.scalar_type(), at::kDouble);
  EXPECT_TRUE(linear.weight.requires_grad());
  const at::Tensor after = linear(x.to(at::kDouble));
  EXPECT_LT((after - before).abs().max().item<double>(), 1e-6);
  after.sum().backward();
  EXPECT_EQ(list.all()[0].tensor.grad().scalar_type(), at::kDouble);
}

}  // namespace
}  // namespace yard::models
