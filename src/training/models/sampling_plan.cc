#include "models/sampling_plan.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cumprod.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "models/sampling_internal.h"

namespace yard::models {
namespace {

at::Tensor squared_cosine_betas(int64_t count) {
  const auto bar = [&](int64_t t) {
    const double time = static_cast<double>(t) / static_cast<double>(count);
    const double c = std::cos((time + 0.008) / 1.008 * std::numbers::pi / 2);
    return c * c;
  };
  std::vector<float> betas;
  for (int64_t t = 0; t < count; ++t)
    betas.push_back(static_cast<float>(std::min(1 - bar(t + 1) / bar(t), 0.999)));
  return at::tensor(betas);
}

at::Tensor betas_of(const SchedulerConfig& c) {
  const int64_t count = c.num_train_timesteps;
  if (!c.trained_betas.empty()) return at::tensor(c.trained_betas).to(at::kFloat);
  switch (c.beta_schedule) {
    case BetaCurve::kLinear:
      return at::linspace(c.beta_start, c.beta_end, count, at::kFloat);
    case BetaCurve::kScaledLinear:
      return at::linspace(std::sqrt(c.beta_start), std::sqrt(c.beta_end), count, at::kFloat)
          .square();
    case BetaCurve::kSquaredCosCap:
      return squared_cosine_betas(count);
  }
  YARD_UNREACHABLE();
}

// Lin et al. 2024, algorithm 1: square roots moved and stretched so that the last is 0.
at::Tensor rescaled_to_zero_snr(const at::Tensor& betas) {
  at::Tensor root = at::cumprod(1 - betas, 0).sqrt();
  const at::Tensor first = root[0].clone(), last = root[-1].clone();
  root = (root - last) * (first / (first - last));
  const at::Tensor bar = root.square();
  const int64_t count = bar.size(0);
  const at::Tensor alphas =
      at::cat({bar.narrow(0, 0, 1), bar.narrow(0, 1, count - 1) / bar.narrow(0, 0, count - 1)});
  return 1 - alphas;
}

}  // namespace

std::vector<float> alphas_cumprod(const SchedulerConfig& config) {
  at::Tensor betas = betas_of(config);
  if (config.rescale_betas_zero_snr) betas = rescaled_to_zero_snr(betas);
  // Without noise at the first timestep a rescaled table rounds to a little over 1.
  const at::Tensor product = at::cumprod(1 - betas, 0).clamp_max(1).contiguous();
  const float* values = product.const_data_ptr<float>();
  return {values, values + product.numel()};
}

std::vector<double> linspace(double from, double to, int64_t count) {
  std::vector<double> out;
  const double step = count > 1 ? (to - from) / static_cast<double>(count - 1) : 0;
  for (int64_t i = 0; i < count; ++i) out.push_back(static_cast<double>(i) * step + from);
  if (count > 1) out.back() = to;
  return out;
}

std::vector<double> arange_down(double from, double step, int64_t count) {
  std::vector<double> out;
  const double delta = (from - step) - from;
  for (int64_t i = 0; i < count; ++i) {
    const double value = from + static_cast<double>(i) * delta;
    if (value > 0) out.push_back(value);
  }
  return out;
}

double round_half_even(double value) {
  return std::nearbyint(value);  // the default rounding mode, which nothing here changes
}

double dynamic_shift(const SchedulerConfig& config, int64_t image_seq_len) {
  const auto base = static_cast<double>(config.base_image_seq_len);
  const auto span = static_cast<double>(config.max_image_seq_len) - base;
  const double slope = (config.max_shift - config.base_shift) / span;
  return static_cast<double>(image_seq_len) * slope + (config.base_shift - slope * base);
}

Result<SamplingPlan> plan_sampling(const SchedulerConfig& config, const SamplingOptions& options) {
  if (options.step_count < 1 || options.step_count > config.num_train_timesteps)
    return Error{Code::kInvalidArgument, "sampling takes 1 to " +
                                             std::to_string(config.num_train_timesteps) +
                                             " steps, not " + std::to_string(options.step_count)};
  switch (config.kind) {
    case SchedulerKind::kDdpm:
    case SchedulerKind::kDdim:
      return plan_ancestral(config, options);
    case SchedulerKind::kDpmSolverMultistep:
    case SchedulerKind::kEuler:
      return plan_by_sigmas(config, options);
    case SchedulerKind::kFlowMatchEuler:
      return plan_flow(config, options);
  }
  YARD_UNREACHABLE();
}

}  // namespace yard::models
