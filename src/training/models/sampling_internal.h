// What the planners of sampling_plan.h share.
#pragma once

#include "models/sampling_plan.h"

namespace yard::models {

// DDPM and DDIM: along the training timesteps.
Result<SamplingPlan> plan_ancestral(const SchedulerConfig& config, const SamplingOptions& options);
// DPM-Solver++ and Euler: along noise levels sigma.
Result<SamplingPlan> plan_by_sigmas(const SchedulerConfig& config, const SamplingOptions& options);
Result<SamplingPlan> plan_flow(const SchedulerConfig& config, const SamplingOptions& options);

// numpy's linspace, and arange downwards from `from` while above 0, of at most `count` values.
std::vector<double> linspace(double from, double to, int64_t count);
std::vector<double> arange_down(double from, double step, int64_t count);
// As numpy rounds: halves to even.
double round_half_even(double value);

}  // namespace yard::models
