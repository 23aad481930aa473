#include "models/scheduler_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "base/file.h"
#include "base/nearest_name.h"
#include "models/config.h"

namespace yard::models {
namespace {

constexpr int64_t kTimestepsMax = 100'000;

template <typename Value>
struct Name {
  std::string_view text;
  Value value;
};

constexpr std::array kKinds = {
    Name{"DDPMScheduler", SchedulerKind::kDdpm},
    Name{"DDIMScheduler", SchedulerKind::kDdim},
    Name{"DPMSolverMultistepScheduler", SchedulerKind::kDpmSolverMultistep},
    Name{"EulerDiscreteScheduler", SchedulerKind::kEuler},
    Name{"FlowMatchEulerDiscreteScheduler", SchedulerKind::kFlowMatchEuler},
};
constexpr std::array kPredictions = {
    Name{"epsilon", PredictionType::kEpsilon},
    Name{"v_prediction", PredictionType::kVelocity},
    Name{"sample", PredictionType::kSample},
};
// DPM-Solver++ alone.
constexpr std::array kFlowPredictions = {
    Name{"epsilon", PredictionType::kEpsilon},
    Name{"v_prediction", PredictionType::kVelocity},
    Name{"sample", PredictionType::kSample},
    Name{"flow_prediction", PredictionType::kFlow},
};
constexpr std::array kCurves = {
    Name{"linear", BetaCurve::kLinear},
    Name{"scaled_linear", BetaCurve::kScaledLinear},
    Name{"squaredcos_cap_v2", BetaCurve::kSquaredCosCap},
};
constexpr std::array kSpacings = {
    Name{"leading", TimestepSpacing::kLeading},
    Name{"trailing", TimestepSpacing::kTrailing},
    Name{"linspace", TimestepSpacing::kLinspace},
};
constexpr std::array kVariances = {
    Name{"fixed_small", VarianceType::kFixedSmall},
    Name{"fixed_small_log", VarianceType::kFixedSmallLog},
    Name{"fixed_large", VarianceType::kFixedLarge},
};
constexpr std::array kFinalSigmas = {
    Name{"zero", FinalSigma::kZero},
    Name{"sigma_min", FinalSigma::kSigmaMin},
};
constexpr std::array kAlgorithms = {
    Name{"dpmsolver++", DpmAlgorithm::kOde},
    Name{"sde-dpmsolver++", DpmAlgorithm::kSde},
};
constexpr std::array kSolvers = {
    Name{"midpoint", DpmSolverType::kMidpoint},
    Name{"heun", DpmSolverType::kHeun},
};
constexpr std::array kTimeShifts = {
    Name{"exponential", TimeShift::kExponential},
    Name{"linear", TimeShift::kLinear},
};

template <typename Names>
auto read(ConfigReader& reader, std::string_view key, const Names& names,
          decltype(names[0].value) fallback) {
  std::vector<std::string_view> known;
  std::string_view fallback_text;
  for (const auto& name : names) {
    known.push_back(name.text);
    if (name.value == fallback) fallback_text = name.text;
  }
  const std::string given = reader.choice(key, fallback_text, known);
  const auto it =
      std::ranges::find(names, std::string_view(given), [](const auto& n) { return n.text; });
  return it == names.end() ? fallback : it->value;
}

template <typename Names, typename Value>
std::string_view text_of(const Names& names, Value value) {
  return std::ranges::find(names, value, [](const auto& n) { return n.value; })->text;
}

// What every class with betas has.
void read_betas(ConfigReader& reader, SchedulerConfig& c) {
  c.beta_start = reader.number("beta_start", c.beta_start);
  c.beta_end = reader.number("beta_end", c.beta_end);
  c.beta_schedule = read(reader, "beta_schedule", kCurves, c.beta_schedule);
  c.trained_betas = reader.numbers_or_null("trained_betas");
  c.prediction_type = c.kind == SchedulerKind::kDpmSolverMultistep
                          ? read(reader, "prediction_type", kFlowPredictions, c.prediction_type)
                          : read(reader, "prediction_type", kPredictions, c.prediction_type);
  c.rescale_betas_zero_snr = reader.boolean("rescale_betas_zero_snr", false);
  c.timestep_spacing = read(reader, "timestep_spacing", kSpacings, c.timestep_spacing);
  c.steps_offset = reader.integer("steps_offset", 0);
  const auto is_beta = [](double beta) { return beta > 0 && beta < 1; };
  if (!is_beta(c.beta_start) || !is_beta(c.beta_end) ||
      !std::ranges::all_of(c.trained_betas, is_beta))
    reader.fail("'beta_start', 'beta_end' and 'trained_betas' must be between 0 and 1");
  if (!c.trained_betas.empty() &&
      static_cast<int64_t>(c.trained_betas.size()) != c.num_train_timesteps)
    reader.fail("'trained_betas' must have 'num_train_timesteps' entries");
  if (c.steps_offset < 0 || c.steps_offset >= c.num_train_timesteps)
    reader.fail("'steps_offset' must be from 0 and below 'num_train_timesteps'");
}

void read_clipping(ConfigReader& reader, SchedulerConfig& c) {
  c.clip_sample = reader.boolean("clip_sample", true);
  c.clip_sample_range = reader.number("clip_sample_range", 1);
}

void read_thresholding(ConfigReader& reader) {
  reader.fixed("thresholding", false);
  for (const char* key : {"dynamic_thresholding_ratio", "sample_max_value"}) reader.ignored(key);
}

void read_ddpm(ConfigReader& reader, SchedulerConfig& c) {
  read_betas(reader, c);
  read_clipping(reader, c);
  read_thresholding(reader);
  c.variance_type = read(reader, "variance_type", kVariances, c.variance_type);
}

void read_ddim(ConfigReader& reader, SchedulerConfig& c) {
  read_betas(reader, c);
  read_clipping(reader, c);
  read_thresholding(reader);
  c.set_alpha_to_one = reader.boolean("set_alpha_to_one", true);
}

void read_sigmas(ConfigReader& reader, SchedulerConfig& c) {
  c.use_karras_sigmas = reader.boolean("use_karras_sigmas", false);
  c.final_sigmas_type = read(reader, "final_sigmas_type", kFinalSigmas, c.final_sigmas_type);
  for (const char* key : {"use_exponential_sigmas", "use_beta_sigmas"}) reader.fixed(key, false);
}

void read_dpm(ConfigReader& reader, SchedulerConfig& c) {
  c.timestep_spacing = TimestepSpacing::kLinspace;
  read_betas(reader, c);
  read_sigmas(reader, c);
  read_thresholding(reader);
  c.solver_order = reader.integer("solver_order", 2);
  if (c.solver_order != 1 && c.solver_order != 2)
    reader.fail("'solver_order': " + std::to_string(c.solver_order) +
                " is not supported, only 1 and 2");
  c.algorithm_type = read(reader, "algorithm_type", kAlgorithms, c.algorithm_type);
  c.solver_type = read(reader, "solver_type", kSolvers, c.solver_type);
  c.lower_order_final = reader.boolean("lower_order_final", true);
  c.euler_at_final = reader.boolean("euler_at_final", false);
  c.lambda_min_clipped = reader.number_or_null("lambda_min_clipped").value_or(c.lambda_min_clipped);
  for (const char* key : {"use_lu_lambdas", "use_dynamic_shifting"}) reader.fixed(key, false);
  reader.fixed("variance_type", nullptr);
  reader.ignored("time_shift_type");
  c.flow_shift = reader.number("flow_shift", 1);
  c.use_flow_sigmas = reader.boolean("use_flow_sigmas", false);
  if (c.use_flow_sigmas != (c.prediction_type == PredictionType::kFlow))
    reader.fail("'use_flow_sigmas' and 'prediction_type' flow_prediction go together");
  if (c.use_flow_sigmas && c.use_karras_sigmas)
    reader.fail("'use_flow_sigmas' and 'use_karras_sigmas' exclude each other");
  if (c.flow_shift <= 0) reader.fail("'flow_shift' must be above 0");
}

void read_euler(ConfigReader& reader, SchedulerConfig& c) {
  c.timestep_spacing = TimestepSpacing::kLinspace;
  read_betas(reader, c);
  read_sigmas(reader, c);
  reader.fixed("interpolation_type", "linear");
  reader.fixed("timestep_type", "discrete");
  c.sigma_min = reader.number_or_null("sigma_min");
  c.sigma_max = reader.number_or_null("sigma_max");
}

void read_flow(ConfigReader& reader, SchedulerConfig& c) {
  c.prediction_type = PredictionType::kFlow;
  c.shift = reader.number("shift", 1);
  c.use_dynamic_shifting = reader.boolean("use_dynamic_shifting", false);
  c.base_shift = reader.number_or_null("base_shift").value_or(c.base_shift);
  c.max_shift = reader.number_or_null("max_shift").value_or(c.max_shift);
  c.base_image_seq_len = reader.size("base_image_seq_len", c.base_image_seq_len);
  c.max_image_seq_len = reader.size("max_image_seq_len", c.max_image_seq_len);
  c.shift_terminal = reader.number_or_null("shift_terminal");
  c.time_shift_type = read(reader, "time_shift_type", kTimeShifts, c.time_shift_type);
  c.stochastic_sampling = reader.boolean("stochastic_sampling", false);
  for (const char* key :
       {"invert_sigmas", "use_karras_sigmas", "use_exponential_sigmas", "use_beta_sigmas"})
    reader.fixed(key, false);
  if (c.shift <= 0) reader.fail("'shift' must be above 0");
  if (c.shift_terminal && (*c.shift_terminal <= 0 || *c.shift_terminal >= 1))
    reader.fail("'shift_terminal' must be between 0 and 1");
  if (c.max_image_seq_len == c.base_image_seq_len)
    reader.fail("'base_image_seq_len' and 'max_image_seq_len' must differ");
}

void read_of_kind(ConfigReader& reader, SchedulerConfig& c) {
  switch (c.kind) {
    case SchedulerKind::kDdpm:
      return read_ddpm(reader, c);
    case SchedulerKind::kDdim:
      return read_ddim(reader, c);
    case SchedulerKind::kDpmSolverMultistep:
      return read_dpm(reader, c);
    case SchedulerKind::kEuler:
      return read_euler(reader, c);
    case SchedulerKind::kFlowMatchEuler:
      return read_flow(reader, c);
  }
}

Result<SchedulerConfig> parse_kind(SchedulerKind kind, const Json& config,
                                   const std::string& what) {
  ConfigReader reader(config, what);
  SchedulerConfig c;
  c.kind = kind;
  c.num_train_timesteps = reader.size("num_train_timesteps", 1000);
  if (c.num_train_timesteps < 2 || c.num_train_timesteps > kTimestepsMax)
    reader.fail("'num_train_timesteps' must be from 2 to " + std::to_string(kTimestepsMax));
  read_of_kind(reader, c);
  YARD_TRY(reader.finish());
  return c;
}

}  // namespace

Result<SchedulerConfig> SchedulerConfig::parse(const Json& config, const std::string& what) {
  std::string name;
  if (config.is_object() && config.contains("_class_name") && config["_class_name"].is_string())
    name = config["_class_name"].get<std::string>();
  std::vector<std::string_view> known;
  for (const auto& kind : kKinds) {
    if (kind.text == name) return parse_kind(kind.value, config, what);
    known.push_back(kind.text);
  }
  return Error{Code::kInvalidArgument, what + ": scheduler class '" + name + "' is not supported" +
                                           suggestion(name, known)};
}

Result<SchedulerConfig> SchedulerConfig::parse_as(SchedulerKind kind, const Json& config,
                                                  const std::string& what) {
  if (!config.is_object()) return Error{Code::kInvalidArgument, what + ": not an object"};
  if (config.value("_class_name", Json()) == Json(text_of(kKinds, kind)))
    return parse_kind(kind, config, what);
  SchedulerConfig of_kind;
  of_kind.kind = kind;
  Json keys = of_kind.to_json();
  if (kind == SchedulerKind::kDpmSolverMultistep) keys["lambda_min_clipped"] = nullptr;
  Json kept = Json::object();
  for (const auto& [key, value] : config.items())
    if (keys.contains(key)) kept[key] = value;
  return parse_kind(kind, kept, what);
}

namespace {

Json or_null(const std::optional<double>& value) {
  return value ? Json(*value) : Json();
}

void write_betas(Json& json, const SchedulerConfig& c) {
  json["beta_start"] = c.beta_start;
  json["beta_end"] = c.beta_end;
  json["beta_schedule"] = text_of(kCurves, c.beta_schedule);
  json["trained_betas"] = c.trained_betas.empty() ? Json() : Json(c.trained_betas);
  json["prediction_type"] = text_of(kFlowPredictions, c.prediction_type);
  json["rescale_betas_zero_snr"] = c.rescale_betas_zero_snr;
  json["timestep_spacing"] = text_of(kSpacings, c.timestep_spacing);
  json["steps_offset"] = c.steps_offset;
}

void write_clipping(Json& json, const SchedulerConfig& c) {
  json["clip_sample"] = c.clip_sample;
  json["clip_sample_range"] = c.clip_sample_range;
}

void write_dpm(Json& json, const SchedulerConfig& c) {
  json["solver_order"] = c.solver_order;
  json["algorithm_type"] = text_of(kAlgorithms, c.algorithm_type);
  json["solver_type"] = text_of(kSolvers, c.solver_type);
  json["lower_order_final"] = c.lower_order_final;
  json["euler_at_final"] = c.euler_at_final;
  json["use_flow_sigmas"] = c.use_flow_sigmas;
  json["flow_shift"] = c.flow_shift;
  json["use_karras_sigmas"] = c.use_karras_sigmas;
  json["final_sigmas_type"] = text_of(kFinalSigmas, c.final_sigmas_type);
  // Minus infinity is diffusers' default, and no number of JSON.
  if (std::isfinite(c.lambda_min_clipped)) json["lambda_min_clipped"] = c.lambda_min_clipped;
}

void write_euler(Json& json, const SchedulerConfig& c) {
  json["use_karras_sigmas"] = c.use_karras_sigmas;
  json["final_sigmas_type"] = text_of(kFinalSigmas, c.final_sigmas_type);
  json["sigma_min"] = or_null(c.sigma_min);
  json["sigma_max"] = or_null(c.sigma_max);
}

void write_flow(Json& json, const SchedulerConfig& c) {
  json["shift"] = c.shift;
  json["use_dynamic_shifting"] = c.use_dynamic_shifting;
  json["base_shift"] = c.base_shift;
  json["max_shift"] = c.max_shift;
  json["base_image_seq_len"] = c.base_image_seq_len;
  json["max_image_seq_len"] = c.max_image_seq_len;
  json["shift_terminal"] = or_null(c.shift_terminal);
  json["time_shift_type"] = text_of(kTimeShifts, c.time_shift_type);
  json["stochastic_sampling"] = c.stochastic_sampling;
}

}  // namespace

Json SchedulerConfig::to_json() const {
  Json json = {{"_class_name", text_of(kKinds, kind)},
               {"num_train_timesteps", num_train_timesteps}};
  if (kind != SchedulerKind::kFlowMatchEuler) write_betas(json, *this);
  switch (kind) {
    case SchedulerKind::kDdpm:
      write_clipping(json, *this);
      json["variance_type"] = text_of(kVariances, variance_type);
      break;
    case SchedulerKind::kDdim:
      write_clipping(json, *this);
      json["set_alpha_to_one"] = set_alpha_to_one;
      break;
    case SchedulerKind::kDpmSolverMultistep:
      write_dpm(json, *this);
      break;
    case SchedulerKind::kEuler:
      write_euler(json, *this);
      break;
    case SchedulerKind::kFlowMatchEuler:
      write_flow(json, *this);
      break;
  }
  return json;
}

namespace {

// Python's json module writes numbers that are none as bare words; null stands for them here.
std::string without_infinities(const std::string& text) {
  std::string out;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"' && (i == 0 || text[i - 1] != '\\')) quoted = !quoted;
    const std::string_view rest = std::string_view(text).substr(i);
    if (!quoted && rest.starts_with("-Infinity")) {
      out += "null";
      i += std::string_view("-Infinity").size() - 1;
    } else {
      out += text[i];
    }
  }
  return out;
}

}  // namespace

Result<SchedulerConfig> read_scheduler(const std::string& folder) {
  const std::string path = folder + "/scheduler_config.json";
  YARD_ASSIGN(const std::string text, read_file(path, uint64_t{1} << 20));
  YARD_ASSIGN(const Json json, parse_json(without_infinities(text), path));
  return SchedulerConfig::parse(json, path);
}

Status save_scheduler(const std::string& folder, const SchedulerConfig& config) {
  YARD_TRY(make_directories(folder));
  return write_file_atomic(folder + "/scheduler_config.json", config.to_json().dump(2) + "\n");
}

}  // namespace yard::models
