#include "loop/recipe_sections_internal.h"

#include "loop/recipe_fields_internal.h"

namespace yard::loop {

const Json& child(const Json& map, std::string_view key) {
  static const Json kAbsent;
  if (!map.is_object()) return kAbsent;
  const auto it = map.find(key);
  return it == map.end() ? kAbsent : *it;
}

Status read_optimizer(const YamlDocument& document, OptimizerRecipe& out) {
  Fields fields(document, child(document.root, "optimizer"), "optimizer");
  fields
      .read_enum("kind", out.kind,
                 {{"adamw", OptimizerKind::kAdamW},
                  {"adamw8bit", OptimizerKind::kAdamW8bit},
                  {"sgd", OptimizerKind::kSgd}})
      .read("beta1", out.beta1)
      .in_range("beta1", out.beta1, 0.0, 0.99999)
      .read("beta2", out.beta2)
      .in_range("beta2", out.beta2, 0.0, 0.9999999)
      .read("eps", out.eps)
      .in_range("eps", out.eps, 1e-30, 1.0)
      .read("weight_decay", out.weight_decay)
      .in_range("weight_decay", out.weight_decay, 0.0, 1e3)
      .read("clip", out.clip)
      .in_range("clip", out.clip, 0.0, 1e9)
      .read("momentum", out.momentum)
      .in_range("momentum", out.momentum, 0.0, 0.99999)
      .read("nesterov", out.nesterov);
  const bool sgd = out.kind == OptimizerKind::kSgd;
  for (const char* key : {"momentum", "nesterov"})
    if (!sgd && fields.find(key) != nullptr)
      fields.fail(fields.path_of(key), fmt::format("optimizer: '{}' is for kind sgd", key));
  for (const char* key : {"beta1", "beta2", "eps"})
    if (sgd && fields.find(key) != nullptr)
      fields.fail(fields.path_of(key), fmt::format("optimizer: kind sgd has no '{}'", key));
  if (out.nesterov && out.momentum == 0)
    fields.fail("optimizer.nesterov", "optimizer: 'nesterov' needs a 'momentum' above 0");
  return fields.status();
}

Status read_ema(const YamlDocument& document, const Json& map, const std::string& path,
                EmaRecipe& out) {
  Fields fields(document, map, path);
  fields.read("decay", out.decay)
      .in_range("decay", out.decay, 0.0, 0.9999999)
      .read("start_step", out.start_step)
      .in_range<int64_t>("start_step", out.start_step, 0, kCountMax)
      .read("update_every", out.update_every)
      .in_range<int64_t>("update_every", out.update_every, 1, 1'000'000)
      .read("warm_up", out.warm_up);
  return fields.status();
}

Status read_guard(const YamlDocument& document, GuardRecipe& out) {
  Fields fields(document, child(document.root, "guard"), "guard");
  fields.read("skip_steps", out.skip_steps)
      .in_range<int64_t>("skip_steps", out.skip_steps, 0, kCountMax)
      .read("spike_factor", out.spike_factor)
      .in_range("spike_factor", out.spike_factor, 0.0, 1e9)
      .read("spike_steps", out.spike_steps)
      .in_range<int64_t>("spike_steps", out.spike_steps, 1, 1'000'000)
      .read("spike_warmup", out.spike_warmup)
      .in_range<int64_t>("spike_warmup", out.spike_warmup, 1, kCountMax)
      .read("rewinds", out.rewinds)
      .in_range<int64_t>("rewinds", out.rewinds, 0, 1'000'000)
      .read("slow_rank_factor", out.slow_rank_factor)
      .in_range("slow_rank_factor", out.slow_rank_factor, 0.0, 1e6)
      .read("data_wait_share", out.data_wait_share)
      .in_range("data_wait_share", out.data_wait_share, 0.0, 1.0);
  if (out.spike_factor > 0 && out.spike_factor <= 1)
    fields.fail("guard.spike_factor", "guard: 'spike_factor' must be over 1, or 0 for none");
  return fields.status();
}

namespace {

void check_diffusion(Fields& fields, const DiffusionRecipe& diffusion) {
  const bool flow = diffusion.prediction == Prediction::kFlow;
  const auto given = [&](std::string_view key) { return fields.find(key) != nullptr; };
  if (diffusion.zero_terminal_snr && diffusion.prediction == Prediction::kEpsilon)
    fields.fail("diffusion.zero_terminal_snr",
                "diffusion: at an SNR of 0 a model of epsilon says nothing of the picture: "
                "'zero_terminal_snr' needs prediction: v_prediction or sample");
  for (const char* key : {"beta_schedule", "beta_start", "beta_end", "zero_terminal_snr",
                          "min_snr_gamma", "p2_gamma"})
    if (flow && given(key))
      fields.fail(fields.path_of(key),
                  fmt::format("diffusion: '{}' is not for prediction: flow_prediction", key));
  if (!flow && given("flow_shift"))
    fields.fail("diffusion.flow_shift",
                "diffusion: 'flow_shift' is for prediction: flow_prediction");
  if (diffusion.min_snr_gamma > 0 && diffusion.p2_gamma > 0)
    fields.fail("diffusion.p2_gamma", "diffusion: either 'min_snr_gamma' or 'p2_gamma'");
  for (const char* key : {"logit_mean", "logit_std"})
    if (diffusion.timestep_sampling == TimestepSampling::kUniform && given(key))
      fields.fail(fields.path_of(key),
                  fmt::format("diffusion: '{}' is for timestep_sampling: logit_normal", key));
}

}  // namespace

Status read_diffusion(const YamlDocument& document, DiffusionRecipe& out) {
  Fields fields(document, child(document.root, "diffusion"), "diffusion");
  fields.read("train_timesteps", out.train_timesteps)
      .in_range<int64_t>("train_timesteps", out.train_timesteps, 2, 1'000'000)
      .read_enum("beta_schedule", out.beta_schedule,
                 {{"linear", BetaSchedule::kLinear},
                  {"scaled_linear", BetaSchedule::kScaledLinear},
                  {"squaredcos_cap_v2", BetaSchedule::kSquaredCosCap}})
      .read("beta_start", out.beta_start)
      .in_range("beta_start", out.beta_start, 0.0, 0.999)
      .read("beta_end", out.beta_end)
      .in_range("beta_end", out.beta_end, out.beta_start, 0.999)
      .read_enum("prediction", out.prediction,
                 {{"epsilon", Prediction::kEpsilon},
                  {"v_prediction", Prediction::kVelocity},
                  {"sample", Prediction::kSample},
                  {"flow_prediction", Prediction::kFlow}})
      .read("caption_dropout", out.caption_dropout)
      .in_range("caption_dropout", out.caption_dropout, 0.0, 1.0)
      .read("min_snr_gamma", out.min_snr_gamma)
      .in_range("min_snr_gamma", out.min_snr_gamma, 0.0, 1e6)
      .read("p2_gamma", out.p2_gamma)
      .in_range("p2_gamma", out.p2_gamma, 0.0, 100.0)
      .read("p2_k", out.p2_k)
      .in_range("p2_k", out.p2_k, 1e-6, 1e6)
      .read("noise_offset", out.noise_offset)
      .in_range("noise_offset", out.noise_offset, 0.0, 10.0)
      .read("zero_terminal_snr", out.zero_terminal_snr)
      .read_enum("timestep_sampling", out.timestep_sampling,
                 {{"uniform", TimestepSampling::kUniform},
                  {"logit_normal", TimestepSampling::kLogitNormal}})
      .read("logit_mean", out.logit_mean)
      .in_range("logit_mean", out.logit_mean, -20.0, 20.0)
      .read("logit_std", out.logit_std)
      .in_range("logit_std", out.logit_std, 1e-3, 20.0)
      .read("flow_shift", out.flow_shift)
      .in_range("flow_shift", out.flow_shift, 1e-3, 1e3);
  check_diffusion(fields, out);
  return fields.status();
}

namespace {

void check_pictures(Fields& fields, const Recipe& recipe) {
  const EvaluationRecipe& e = recipe.evaluation;
  if (e.pictures == 1)
    fields.fail("evaluation.pictures", "evaluation: one picture has no spread: at least 2");
  if (e.pictures > 0 && e.samples == 0)
    fields.fail("evaluation.pictures", "evaluation: 'pictures' goes with 'samples'");
  if (e.pictures > 0 && recipe.data.shards.empty())
    fields.fail("evaluation.pictures",
                "evaluation: 'pictures' are compared with those of data.shards, which is missing");
  if (e.pictures == 0 && (!e.clip.empty() || e.best_by != BestBy::kLoss))
    fields.fail("evaluation", "evaluation: 'clip' and 'best_by' want 'pictures'");
  if (e.best_by == BestBy::kClipScore && e.clip.empty())
    fields.fail("evaluation.best_by", "evaluation: 'best_by: clip_score' wants a 'clip'");
}

}  // namespace

Status read_evaluation(const YamlDocument& document, Recipe& recipe) {
  EvaluationRecipe& out = recipe.evaluation;
  out.samples = recipe.data.held_out;
  Fields fields(document, child(document.root, "evaluation"), "evaluation");
  fields.read("every_steps", out.every_steps)
      .in_range<int64_t>("every_steps", out.every_steps, 0, kCountMax)
      .read("samples", out.samples)
      .in_range<int64_t>("samples", out.samples, 0, recipe.data.held_out)
      .read("buckets", out.buckets)
      .in_range<int64_t>("buckets", out.buckets, 1, 100)
      .read("looks", out.looks)
      .in_range<int64_t>("looks", out.looks, 1, 100)
      .read("pictures", out.pictures)
      .in_range<int64_t>("pictures", out.pictures, 0, recipe.data.held_out)
      .read("clip", out.clip)
      .read_enum("best_by", out.best_by,
                 {{to_string(BestBy::kLoss), BestBy::kLoss},
                  {to_string(BestBy::kFrechet), BestBy::kFrechet},
                  {to_string(BestBy::kClipScore), BestBy::kClipScore}})
      .read("keep_best", out.keep_best);
  check_pictures(fields, recipe);
  return fields.status();
}

Status read_sampling(const YamlDocument& document, const DiffusionRecipe& diffusion,
                     SamplingRecipe& out) {
  Fields fields(document, child(document.root, "sampling"), "sampling");
  fields.read("prompts", out.prompts)
      .read("steps", out.steps)
      .in_range<int64_t>("steps", out.steps, 1, diffusion.train_timesteps)
      .read("guidance", out.guidance)
      .read("guidance_rescale", out.guidance_rescale)
      .in_range("guidance_rescale", out.guidance_rescale, 0.0, 1.0)
      .in_range("guidance", out.guidance, 0.0, 1e3)
      .read("columns", out.columns)
      .in_range<int64_t>("columns", out.columns, 0, 1024)
      .read("every_steps", out.every_steps)
      .in_range<int64_t>("every_steps", out.every_steps, 0, kCountMax)
      .read("at_stage_end", out.at_stage_end);
  if (out.prompts.size() > 1024) fields.fail("sampling.prompts", "more than 1024 prompts");
  return fields.status();
}

Status read_checkpoint(const YamlDocument& document, CheckpointRecipe& out) {
  Fields fields(document, child(document.root, "checkpoint"), "checkpoint");
  fields.read("every_steps", out.every_steps)
      .in_range<int64_t>("every_steps", out.every_steps, 0, kCountMax)
      .read("every_minutes", out.every_minutes)
      .in_range("every_minutes", out.every_minutes, 0.0, 1e6)
      .read("keep", out.keep)
      .in_range<int64_t>("keep", out.keep, 1, 1'000'000);
  return fields.status();
}

}  // namespace yard::loop
