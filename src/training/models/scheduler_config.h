// scheduler_config.json: how noise is laid on in training and taken off in sampling, with the keys
// and defaults of diffusers. Pure, but for the two functions on a folder.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace yard::models {

enum class SchedulerKind : uint8_t {
  kDdpm,                // Ho et al. 2020
  kDdim,                // Song et al. 2021
  kDpmSolverMultistep,  // Lu et al. 2022: DPM-Solver++, of order 1 or 2 ("2M"), ODE and SDE
  kEuler,               // Karras et al. 2022, algorithm 2 without churn
  kFlowMatchEuler,      // rectified flow: Liu et al. 2023, Esser et al. 2024
};
// What a model's output is.
enum class PredictionType : uint8_t { kEpsilon, kVelocity, kSample, kFlow };
enum class BetaCurve : uint8_t { kLinear, kScaledLinear, kSquaredCosCap };
enum class TimestepSpacing : uint8_t { kLeading, kTrailing, kLinspace };
enum class VarianceType : uint8_t { kFixedSmall, kFixedSmallLog, kFixedLarge };
enum class FinalSigma : uint8_t { kZero, kSigmaMin };
enum class DpmAlgorithm : uint8_t { kOde, kSde };
enum class DpmSolverType : uint8_t { kMidpoint, kHeun };
enum class TimeShift : uint8_t { kExponential, kLinear };

// What the keys of the same names say. A key that diffusers' class does not have keeps its value
// here and is not written.
struct SchedulerConfig {
  SchedulerKind kind = SchedulerKind::kDdim;
  int64_t num_train_timesteps = 1000;

  // All but flow matching.
  double beta_start = 0.0001, beta_end = 0.02;
  BetaCurve beta_schedule = BetaCurve::kLinear;
  std::vector<double> trained_betas;  // if any: instead of the three above
  PredictionType prediction_type = PredictionType::kEpsilon;
  bool rescale_betas_zero_snr = false;  // Lin et al. 2024
  TimestepSpacing timestep_spacing = TimestepSpacing::kLeading;
  int64_t steps_offset = 0;

  // DDPM, DDIM.
  bool clip_sample = true;
  double clip_sample_range = 1;
  bool set_alpha_to_one = true;                            // DDIM
  VarianceType variance_type = VarianceType::kFixedSmall;  // DDPM

  // DPM-Solver++.
  int64_t solver_order = 2;
  DpmAlgorithm algorithm_type = DpmAlgorithm::kOde;
  DpmSolverType solver_type = DpmSolverType::kMidpoint;
  bool lower_order_final = true, euler_at_final = false;
  double lambda_min_clipped = -std::numeric_limits<double>::infinity();
  // Noise levels of a rectified flow, (1 - s) clean + s noise, instead of those of betas;
  // prediction_type is then kFlow.
  bool use_flow_sigmas = false;
  double flow_shift = 1;

  // DPM-Solver++, Euler.
  bool use_karras_sigmas = false;
  FinalSigma final_sigmas_type = FinalSigma::kZero;
  std::optional<double> sigma_min, sigma_max;  // Euler

  // Flow matching.
  double shift = 1;
  bool use_dynamic_shifting = false;  // by SamplingOptions::mu, see dynamic_shift()
  double base_shift = 0.5, max_shift = 1.15;
  int64_t base_image_seq_len = 256, max_image_seq_len = 4096;
  std::optional<double> shift_terminal;
  TimeShift time_shift_type = TimeShift::kExponential;
  bool stochastic_sampling = false;

  // By "_class_name". kInvalidArgument names the key: unknown, or of a value that we do not have.
  static Result<SchedulerConfig> parse(const Json& config, const std::string& what);
  // As that kind, whatever the file says: a model trained with one scheduler may be sampled with
  // another. Keys that the other class alone knows are passed over.
  static Result<SchedulerConfig> parse_as(SchedulerKind kind, const Json& config,
                                          const std::string& what);
  // With "_class_name" and every key of the class.
  Json to_json() const;
};

// folder/scheduler_config.json, as a pipeline keeps it. Reading accepts the -Infinity that Python
// writes.
Result<SchedulerConfig> read_scheduler(const std::string& folder);
Status save_scheduler(const std::string& folder, const SchedulerConfig& config);

}  // namespace yard::models
