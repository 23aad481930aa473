#include <cmath>

#include "models/sampling_internal.h"

namespace yard::models {
namespace {

double shifted(double shift, double sigma) {
  return shift * sigma / (1 + (shift - 1) * sigma);
}

// Of the schedule that a model is trained on; f32 as diffusers keeps it.
float training_sigma(const SchedulerConfig& c, int64_t timestep) {
  const float sigma = static_cast<float>(timestep) / static_cast<float>(c.num_train_timesteps);
  if (c.use_dynamic_shifting) return sigma;
  const double shift = c.use_flow_sigmas ? c.flow_shift : c.shift;
  return static_cast<float>(shift) * sigma / (1 + static_cast<float>(shift - 1) * sigma);
}

double resolution_shifted(const SchedulerConfig& c, double mu, double sigma) {
  const double odds = 1 / sigma - 1;
  const double weight = c.time_shift_type == TimeShift::kExponential ? std::exp(mu) : mu;
  return weight / (weight + odds);
}

std::vector<double> sigmas_of(const SchedulerConfig& c, const SamplingOptions& options) {
  const auto total = static_cast<double>(c.num_train_timesteps);
  const double most = training_sigma(c, c.num_train_timesteps), least = training_sigma(c, 1);
  std::vector<double> sigmas;
  for (const double t : linspace(most * total, least * total, options.step_count)) {
    const double sigma = t / total;
    sigmas.push_back(c.use_dynamic_shifting ? resolution_shifted(c, *options.mu, sigma)
                                            : shifted(c.shift, sigma));
  }
  if (!c.shift_terminal) return sigmas;
  const double stretch = (1 - sigmas.back()) / (1 - *c.shift_terminal);
  for (double& sigma : sigmas) sigma = 1 - (1 - sigma) / stretch;
  return sigmas;
}

}  // namespace

std::vector<float> flow_sigmas(const SchedulerConfig& config) {
  std::vector<float> out;
  for (int64_t t = 1; t <= config.num_train_timesteps; ++t)
    out.push_back(training_sigma(config, t));
  return out;
}

Result<SamplingPlan> plan_flow(const SchedulerConfig& config, const SamplingOptions& options) {
  if (config.use_dynamic_shifting && !options.mu)
    return Error{Code::kInvalidArgument, "'use_dynamic_shifting': sampling wants a 'mu'"};
  std::vector<float> sigmas;
  for (const double sigma : sigmas_of(config, options)) sigmas.push_back(static_cast<float>(sigma));
  sigmas.push_back(0);
  SamplingPlan plan;
  for (size_t i = 0; i + 1 < sigmas.size(); ++i) {
    const float sigma = sigmas[i], next = sigmas[i + 1];
    SamplingStep step{.timestep = sigma * static_cast<float>(config.num_train_timesteps),
                      .clean_from_sample = 1,
                      .clean_from_output = -sigma};
    if (config.stochastic_sampling) {
      step.next_from_clean = 1 - next;
      step.next_from_noise = next;
    } else {
      step.next_from_sample = 1;
      step.next_from_output = next - sigma;
    }
    plan.steps.push_back(step);
  }
  return plan;
}

}  // namespace yard::models
