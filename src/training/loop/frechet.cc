#include "loop/frechet.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/linalg_eigh.h>
#include <ATen/ops/linalg_eigvalsh.h>
#include <ATen/ops/matmul.h>

#include <algorithm>
#include <tuple>

#include "base/result.h"

namespace yard::loop {
namespace {

// Of a symmetric matrix without negative eigenvalues, but for rounding.
at::Tensor root_of(const at::Tensor& matrix) {
  const auto [values, vectors] = at::linalg_eigh(matrix);
  return at::matmul(vectors * values.clamp_min(0).sqrt(), vectors.t());
}

}  // namespace

FeatureStatistics statistics_of(const at::Tensor& features) {
  YARD_CHECK(features.dim() == 2 && features.size(0) >= 2);
  const at::Tensor rows = features.to(at::kDouble);
  const at::Tensor mean = rows.mean(0);
  const at::Tensor centred = rows - mean;
  return {mean, at::matmul(centred.t(), centred) / static_cast<double>(rows.size(0) - 1)};
}

double frechet_distance(const FeatureStatistics& a, const FeatureStatistics& b) {
  const at::Tensor root = root_of(a.covariance);
  const at::Tensor between = at::matmul(at::matmul(root, b.covariance), root);
  const at::Tensor values = at::linalg_eigvalsh((between + between.t()) / 2);
  const double shared = values.clamp_min(0).sqrt().sum().item<double>();
  const double spread = (a.covariance.trace() + b.covariance.trace()).item<double>();
  const double apart = (a.mean - b.mean).square().sum().item<double>();
  return std::max(apart + spread - 2 * shared, 0.0);
}

}  // namespace yard::loop
