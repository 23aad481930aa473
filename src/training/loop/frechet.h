// How far apart two sets of features are, as FID measures it (Heusel et al. 2017): the Frechet
// distance of the two normal distributions with the sets' means and covariances. Pure.
#pragma once

#include <ATen/core/Tensor.h>

namespace yard::loop {

struct FeatureStatistics {
  at::Tensor mean;        // [D] f64
  at::Tensor covariance;  // [D, D] f64, of the sample (N - 1)
};

// features [N, D], N at least 2.
FeatureStatistics statistics_of(const at::Tensor& features);

// |mean difference|^2 + Tr(A + B - 2 (A B)^(1/2)); at least 0. The trace of the root is that of the
// symmetric (A^(1/2) B A^(1/2))^(1/2), so that covariances of fewer samples than features, which
// have no inverse, do no harm.
double frechet_distance(const FeatureStatistics& a, const FeatureStatistics& b);

}  // namespace yard::loop
