// A sampler's way from noise to a picture as plain numbers: every scheduler that we have is, step
// by step, the same few products and sums with other factors. Pure.
//
// Factors are computed in f32 and in diffusers' order of operations, so that samples stay within
// rounding of its own, over whole runs.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/result.h"
#include "models/scheduler_config.h"

namespace yard::models {

struct SamplingStep {
  double timestep = 0;     // what the model is told
  double input_scale = 1;  // the model sees the sample times this

  // The picture as the model sees it: clean = from_sample * sample + from_output * output, then
  // clipped to [-limit, limit].
  double clean_from_sample = 0;
  double clean_from_output = 0;
  std::optional<double> clean_limit;

  // The next sample, as a sum.
  double next_from_sample = 0;
  double next_from_output = 0;
  double next_from_clean = 0;
  double next_from_previous_clean = 0;  // of the step before; 0 in the first step
  double next_from_noise = 0;           // of N(0, 1), drawn anew; 0 where none is wanted
};

struct SamplingPlan {
  double initial_scale = 1;  // the first sample is N(0, 1) times this
  std::vector<SamplingStep> steps;
};

struct SamplingOptions {
  int64_t step_count = 50;
  double eta = 0;            // DDIM: 0 draws no noise, 1 as much as DDPM
  std::optional<double> mu;  // flow matching with use_dynamic_shifting, which wants it
};

// kInvalidArgument: more steps than num_train_timesteps or none, a spacing that leaves the
// schedule, mu missing, noise prediction from a sample that is nothing but noise.
Result<SamplingPlan> plan_sampling(const SchedulerConfig& config, const SamplingOptions& options);

// The signal's share of variance at each training timestep: noisy = sqrt(a) clean + sqrt(1 - a)
// noise. num_train_timesteps values; not for flow matching.
std::vector<float> alphas_cumprod(const SchedulerConfig& config);

// The noise's share at each training timestep of a rectified flow, ascending to 1: noisy = (1 - s)
// clean + s noise. num_train_timesteps values; of flow matching without dynamic shifting, or with
// use_flow_sigmas.
std::vector<float> flow_sigmas(const SchedulerConfig& config);

// SamplingOptions::mu for that many tokens of a picture, linear between base_shift and max_shift.
double dynamic_shift(const SchedulerConfig& config, int64_t image_seq_len);

}  // namespace yard::models
