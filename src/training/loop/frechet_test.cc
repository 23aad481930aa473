#include "loop/frechet.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

namespace yard::loop {
namespace {

// sin(0.37 i^2 + phase), [rows, 3].
at::Tensor features(int64_t rows, double phase, double scale) {
  const at::Tensor i = at::arange(rows * 3, at::kDouble);
  return ((i * i * 0.37 + phase).sin() * scale).view({rows, 3});
}

double distance(const at::Tensor& a, const at::Tensor& b) {
  return frechet_distance(statistics_of(a), statistics_of(b));
}

// Golden values: numpy.cov, and the roots of numpy.linalg.eigvals(A @ B) for the trace; the first
// is also torchmetrics' FrechetInceptionDistance of the same statistics.
TEST(FrechetTest, DistancesAreThoseOfNumpy) {
  EXPECT_NEAR(distance(features(20, 0, 1), features(30, 1, 2)), 2.0822166180607704, 1e-9);
  EXPECT_NEAR(distance(features(8, 0.5, 1), features(9, 2, 1)), 0.4460360650479056, 1e-9);
  EXPECT_NEAR(distance(features(50, 0, 3), features(40, 0.1, 3)), 0.10116735353826556, 1e-9);
}

TEST(FrechetTest, ASetIsNoDistanceFromItselfAndAMovedOneItsSquare) {
  const at::Tensor a = features(20, 0, 1);
  EXPECT_NEAR(distance(a, a), 0, 1e-12);
  const at::Tensor moved = a + at::tensor({1.0, 0.0, -2.0});
  EXPECT_NEAR(distance(a, moved), 5, 1e-9);
}

// Of one feature: (difference of means)^2 + (difference of deviations)^2.
TEST(FrechetTest, OfOneFeatureItIsTheFormulaOfTheTextbook) {
  const at::Tensor a = features(30, 0, 1).narrow(1, 0, 1), b = features(30, 2, 3).narrow(1, 1, 1);
  const double means = (a.mean() - b.mean()).item<double>();
  const double deviations = (a.std() - b.std()).item<double>();
  EXPECT_NEAR(distance(a, b), means * means + deviations * deviations, 1e-9);
}

TEST(FrechetTest, FewerSamplesThanFeaturesDoNoHarm) {
  const at::Tensor few = features(2, 0, 1), other = features(2, 1, 1);
  const double there = distance(few, other);
  EXPECT_GT(there, 0);
  EXPECT_NEAR(distance(other, few), there, 1e-6);
}

}  // namespace
}  // namespace yard::loop
