#include <algorithm>
#include <cmath>

#include "models/sampling_internal.h"

namespace yard::models {
namespace {

constexpr double kKarrasRho = 7;   // Karras et al. 2022
constexpr int64_t kFewSteps = 15;  // below: DPM-Solver's last steps are of lower order

// Noise over signal at each training timestep, ascending.
std::vector<float> training_sigmas(const SchedulerConfig& c) {
  std::vector<float> alphas = alphas_cumprod(c);
  // Nothing but noise has no finite sigma: the smallest signal that f16 holds.
  if (c.rescale_betas_zero_snr) alphas.back() = 0x1p-24F;
  std::vector<float> sigmas;
  for (const float a : alphas) sigmas.push_back(std::sqrt((1 - a) / a));
  return sigmas;
}

// Along the training timesteps, as numpy's interp: ends hold beyond the table.
double interpolate(const std::vector<float>& table, double at) {
  if (at <= 0) return table.front();
  const auto low = static_cast<size_t>(at);
  if (low + 1 >= table.size()) return table.back();
  const double left = table[low], right = table[low + 1];
  return (right - left) * (at - static_cast<double>(low)) + left;
}

std::vector<double> karras_sigmas(double low, double high, int64_t count) {
  const double from = std::pow(high, 1 / kKarrasRho), to = std::pow(low, 1 / kKarrasRho);
  std::vector<double> out;
  for (const double share : linspace(0, 1, count))
    out.push_back(std::pow(from + share * (to - from), kKarrasRho));
  return out;
}

// The place in the table of logarithms, between two training timesteps.
double timestep_of(double sigma, const std::vector<float>& log_sigmas) {
  const double log_sigma = std::log(std::max(sigma, 1e-10));
  const auto above = std::ranges::upper_bound(log_sigmas, log_sigma);
  const auto count = static_cast<int64_t>(above - log_sigmas.begin());
  const auto low = std::clamp<int64_t>(count - 1, 0, static_cast<int64_t>(log_sigmas.size()) - 2);
  const float left = log_sigmas[static_cast<size_t>(low)];
  const float right = log_sigmas[static_cast<size_t>(low) + 1];
  const double share = std::clamp((left - log_sigma) / static_cast<double>(left - right), 0.0, 1.0);
  return (1 - share) * static_cast<double>(low) + share * static_cast<double>(low + 1);
}

std::vector<float> logarithms(const std::vector<float>& values) {
  std::vector<float> out;
  for (const float value : values) out.push_back(std::log(value));
  return out;
}

// A step for each timestep; sigmas have one more, the last step's goal.
struct SigmaPath {
  std::vector<double> timesteps;
  std::vector<float> sigmas;
};

void end_path(const SchedulerConfig& c, const std::vector<float>& table, SigmaPath& path) {
  path.sigmas.push_back(c.final_sigmas_type == FinalSigma::kZero ? 0.0F : table.front());
}

std::vector<double> euler_timesteps(const SchedulerConfig& c, int64_t count) {
  const auto total = static_cast<double>(c.num_train_timesteps);
  std::vector<double> out;
  switch (c.timestep_spacing) {
    case TimestepSpacing::kLinspace:
      for (const double t : linspace(0, total - 1, count)) out.push_back(static_cast<float>(t));
      std::ranges::reverse(out);
      break;
    case TimestepSpacing::kLeading: {
      const int64_t stride = c.num_train_timesteps / count;
      for (int64_t i = count - 1; i >= 0; --i)
        out.push_back(static_cast<double>(i * stride + c.steps_offset));
      break;
    }
    case TimestepSpacing::kTrailing:
      for (const double t : arange_down(total, total / static_cast<double>(count), count))
        out.push_back(round_half_even(t) - 1);
      break;
  }
  return out;
}

SigmaPath euler_path(const SchedulerConfig& c, int64_t count) {
  const std::vector<float> table = training_sigmas(c);
  SigmaPath path{.timesteps = euler_timesteps(c, count), .sigmas = {}};
  std::vector<double> sigmas;
  for (const double t : path.timesteps) sigmas.push_back(interpolate(table, t));
  if (c.use_karras_sigmas) {
    sigmas = karras_sigmas(c.sigma_min.value_or(sigmas.back()),
                           c.sigma_max.value_or(sigmas.front()), count);
    const std::vector<float> logs = logarithms(table);
    path.timesteps.clear();
    for (const double sigma : sigmas)
      path.timesteps.push_back(static_cast<float>(timestep_of(sigma, logs)));
  }
  path.sigmas.assign(sigmas.begin(), sigmas.end());
  end_path(c, table, path);
  return path;
}

SamplingStep euler_step(PredictionType prediction, double timestep, float sigma, float next) {
  const float square = sigma * sigma + 1;
  SamplingStep step{.timestep = timestep, .input_scale = 1 / std::sqrt(square)};
  switch (prediction) {
    case PredictionType::kEpsilon:
      step.clean_from_sample = 1;
      step.clean_from_output = -sigma;
      break;
    case PredictionType::kSample:
      step.clean_from_output = 1;
      break;
    case PredictionType::kVelocity:
    case PredictionType::kFlow:
      step.clean_from_sample = 1 / square;
      step.clean_from_output = -sigma / std::sqrt(square);
      break;
  }
  // sample + (sample - clean) / sigma * (next - sigma)
  const double share = (static_cast<double>(next) - sigma) / sigma;
  step.next_from_sample = 1 + share;
  step.next_from_clean = -share;
  return step;
}

SamplingPlan plan_euler(const SchedulerConfig& c, int64_t count) {
  const SigmaPath path = euler_path(c, count);
  SamplingPlan plan;
  const float most = std::ranges::max(path.sigmas);
  plan.initial_scale =
      c.timestep_spacing == TimestepSpacing::kLeading ? std::sqrt(most * most + 1) : most;
  for (size_t i = 0; i < path.timesteps.size(); ++i)
    plan.steps.push_back(
        euler_step(c.prediction_type, path.timesteps[i], path.sigmas[i], path.sigmas[i + 1]));
  return plan;
}

// The number of training timesteps whose log of signal over noise is not clipped.
int64_t unclipped_count(const SchedulerConfig& c, const std::vector<float>& table) {
  const auto is_clipped = [&](float sigma) {
    const float alpha = 1 / std::sqrt(sigma * sigma + 1);
    return std::log(alpha) - std::log(sigma * alpha) < static_cast<float>(c.lambda_min_clipped);
  };
  return c.num_train_timesteps - static_cast<int64_t>(std::ranges::count_if(table, is_clipped));
}

std::vector<int64_t> dpm_timesteps(const SchedulerConfig& c, int64_t last, int64_t count) {
  const auto end = static_cast<double>(last);
  std::vector<int64_t> out;
  switch (c.timestep_spacing) {
    case TimestepSpacing::kLinspace:
      for (const double t : linspace(0, end - 1, count + 1))
        out.push_back(static_cast<int64_t>(round_half_even(t)));
      std::ranges::reverse(out);
      out.pop_back();
      break;
    case TimestepSpacing::kLeading: {
      const int64_t stride = last / (count + 1);
      for (int64_t i = count; i > 0; --i) out.push_back(i * stride + c.steps_offset);
      break;
    }
    case TimestepSpacing::kTrailing: {
      const double stride = static_cast<double>(c.num_train_timesteps) / static_cast<double>(count);
      for (const double t : arange_down(end, stride, count))
        out.push_back(static_cast<int64_t>(round_half_even(t)) - 1);
      break;
    }
  }
  return out;
}

// From just under 1 down in even steps, then shifted; timesteps are whole numbers, cut.
SigmaPath flow_path(const SchedulerConfig& c, int64_t count) {
  const auto total = static_cast<double>(c.num_train_timesteps);
  SigmaPath path;
  for (const double alpha : linspace(1, 1 / total, count + 1)) {
    const double sigma = c.flow_shift * (1 - alpha) / (1 + (c.flow_shift - 1) * (1 - alpha));
    path.sigmas.push_back(static_cast<float>(sigma));
    path.timesteps.push_back(std::trunc(sigma * total));
  }
  std::ranges::reverse(path.sigmas);
  std::ranges::reverse(path.timesteps);
  path.timesteps.pop_back();
  path.sigmas.pop_back();
  end_path(c, training_sigmas(c), path);
  return path;
}

SigmaPath dpm_path(const SchedulerConfig& c, int64_t count) {
  if (c.use_flow_sigmas) return flow_path(c, count);
  const std::vector<float> table = training_sigmas(c);
  SigmaPath path;
  if (c.use_karras_sigmas) {
    const std::vector<float> logs = logarithms(table);
    const bool rounds = c.beta_schedule != BetaCurve::kSquaredCosCap;
    for (const double sigma : karras_sigmas(table.front(), table.back(), count)) {
      const double t = timestep_of(sigma, logs);
      path.timesteps.push_back(rounds ? round_half_even(t) : std::trunc(t));
      path.sigmas.push_back(static_cast<float>(sigma));
    }
  } else {
    for (const int64_t t : dpm_timesteps(c, unclipped_count(c, table), count)) {
      path.timesteps.push_back(static_cast<double>(t));
      path.sigmas.push_back(static_cast<float>(interpolate(table, static_cast<double>(t))));
    }
  }
  end_path(c, table, path);
  return path;
}

// A noise level as DPM-Solver counts: signal, noise and the log of their quotient.
struct Level {
  // `value`: of a path.
  Level(const SchedulerConfig& c, float value)
      : alpha(c.use_flow_sigmas ? 1 - value : 1 / std::sqrt(value * value + 1)),
        sigma(c.use_flow_sigmas ? value : value * alpha),
        lambda(std::log(alpha) - std::log(sigma)) {}
  float alpha, sigma, lambda;
};

void read_dpm_output(PredictionType prediction, const Level& level, SamplingStep& step) {
  switch (prediction) {
    case PredictionType::kEpsilon:
      step.clean_from_sample = 1 / level.alpha;
      step.clean_from_output = -level.sigma / level.alpha;
      return;
    case PredictionType::kSample:
      step.clean_from_output = 1;
      return;
    case PredictionType::kVelocity:
      step.clean_from_sample = level.alpha;
      step.clean_from_output = -level.sigma;
      return;
    case PredictionType::kFlow:
      step.clean_from_sample = 1;
      step.clean_from_output = -level.sigma;
      return;
  }
}

// Lu et al. 2022: the integral over the clean picture, held constant over the step (first order)
// or linear through the step before's (second), whose log quotient was `h_before` earlier.
void advance_dpm(const SchedulerConfig& c, const Level& from, const Level& to,
                 std::optional<float> h_before, SamplingStep& step) {
  const float h = to.lambda - from.lambda;
  const bool sde = c.algorithm_type == DpmAlgorithm::kSde;
  const float length = sde ? 2 * h : h;
  const float gain = to.alpha * (1 - std::exp(-length));
  step.next_from_sample = to.sigma / from.sigma * (sde ? std::exp(-h) : 1);
  step.next_from_clean = gain;
  if (sde) step.next_from_noise = to.sigma * std::sqrt(1 - std::exp(-2 * h));
  if (!h_before) return;
  const float slope = c.solver_type == DpmSolverType::kMidpoint
                          ? 0.5F * gain
                          : to.alpha * ((std::exp(-length) - 1) / length + 1);
  const float share = slope * (h / *h_before);
  step.next_from_clean += share;
  step.next_from_previous_clean = -share;
}

SamplingPlan plan_dpm(const SchedulerConfig& c, int64_t count) {
  const SigmaPath path = dpm_path(c, count);
  const size_t steps = path.timesteps.size();
  const bool few = static_cast<int64_t>(steps) < kFewSteps;
  const bool eases_out =
      c.euler_at_final || (c.lower_order_final && few) || c.final_sigmas_type == FinalSigma::kZero;
  SamplingPlan plan;
  for (size_t i = 0; i < steps; ++i) {
    const Level from(c, path.sigmas[i]), to(c, path.sigmas[i + 1]);
    SamplingStep step{.timestep = path.timesteps[i]};
    read_dpm_output(c.prediction_type, from, step);
    const bool first_order = c.solver_order == 1 || i == 0 || (i + 1 == steps && eases_out);
    const std::optional<float> h_before =
        first_order ? std::nullopt
                    : std::optional(from.lambda - Level(c, path.sigmas[i - 1]).lambda);
    advance_dpm(c, from, to, h_before, step);
    plan.steps.push_back(step);
  }
  return plan;
}

}  // namespace

Result<SamplingPlan> plan_by_sigmas(const SchedulerConfig& config, const SamplingOptions& options) {
  SamplingPlan plan = config.kind == SchedulerKind::kEuler ? plan_euler(config, options.step_count)
                                                           : plan_dpm(config, options.step_count);
  if (plan.steps.empty() || plan.steps.front().timestep >= config.num_train_timesteps)
    return Error{Code::kInvalidArgument,
                 "no such path: 'steps_offset' or 'lambda_min_clipped' leaves the training "
                 "timesteps"};
  return plan;
}

}  // namespace yard::models
