// Recipe::identity().
#include "loop/recipe.h"

namespace yard::loop {
namespace {

// What differs from the default alone: checkpoints made before a key was there are taken up still.
template <typename T>
void add_changed(Json& out, const char* key, const T& value, const T& usual) {
  if (value != usual) out[key] = value;
}

Json identity_of(const EmaRecipe& ema) {
  const EmaRecipe usual;
  Json out = {{"decay", ema.decay}, {"start_step", ema.start_step}};
  add_changed(out, "update_every", ema.update_every, usual.update_every);
  add_changed(out, "warm_up", ema.warm_up, usual.warm_up);
  return out;
}

Json identity_of(const StageRecipe& s, const EmaRecipe& run_ema) {
  Json out = {{"name", s.name},
              {"train", to_string(s.train)},
              {"resolution", s.resolution},
              {"steps", s.steps},
              {"batch", s.batch},
              {"learning_rate", s.learning_rate},
              {"warmup_steps", s.warmup_steps},
              {"schedule", static_cast<int>(s.schedule)},
              {"random_flip", s.random_flip},
              {"cache_latents", s.cache_latents},
              {"reconstruction", static_cast<int>(s.reconstruction)},
              {"kl_weight", s.kl_weight}};
  const StageRecipe usual;
  add_changed(out, "latents", !s.latents.empty(), false);
  Json buckets = Json::array();
  for (const PictureSide& side : s.aspect_buckets) buckets.push_back({side.width, side.height});
  add_changed(out, "aspect_buckets", buckets, Json(Json::array()));
  add_changed(out, "final_learning_rate", s.final_learning_rate, usual.final_learning_rate);
  add_changed(out, "power", s.power, usual.power);
  add_changed(out, "freeze", s.freeze, usual.freeze);
  add_changed(out, "ema", identity_of(s.ema), identity_of(run_ema));
  return out;
}

Json identity_of(const OptimizerRecipe& o) {
  const OptimizerRecipe usual;
  Json out = {{"beta1", o.beta1},
              {"beta2", o.beta2},
              {"eps", o.eps},
              {"weight_decay", o.weight_decay},
              {"clip", o.clip}};
  add_changed(out, "kind", static_cast<int>(o.kind), static_cast<int>(usual.kind));
  if (o.kind == OptimizerKind::kSgd)
    out.update({{"momentum", o.momentum}, {"nesterov", o.nesterov}});
  return out;
}

Json identity_of(const DiffusionRecipe& d) {
  const DiffusionRecipe usual;
  Json out = {{"train_timesteps", d.train_timesteps},
              {"beta_schedule", static_cast<int>(d.beta_schedule)},
              {"beta_start", d.beta_start},
              {"beta_end", d.beta_end},
              {"prediction", static_cast<int>(d.prediction)},
              {"caption_dropout", d.caption_dropout},
              {"min_snr_gamma", d.min_snr_gamma}};
  add_changed(out, "p2_gamma", d.p2_gamma, usual.p2_gamma);
  add_changed(out, "p2_k", d.p2_k, usual.p2_k);
  add_changed(out, "noise_offset", d.noise_offset, usual.noise_offset);
  add_changed(out, "zero_terminal_snr", d.zero_terminal_snr, usual.zero_terminal_snr);
  add_changed(out, "timestep_sampling", static_cast<int>(d.timestep_sampling),
              static_cast<int>(usual.timestep_sampling));
  add_changed(out, "logit_mean", d.logit_mean, usual.logit_mean);
  add_changed(out, "logit_std", d.logit_std, usual.logit_std);
  add_changed(out, "flow_shift", d.flow_shift, usual.flow_shift);
  return out;
}

Json identity_of(const std::optional<ModelPart>& part) {
  if (!part) return nullptr;
  return {{"from", part->from}, {"config", part->config}};
}

Json identity_of(const DataRecipe& data) {
  if (data.synthetic)
    return {
        {"synthetic", {{"samples", data.synthetic->samples}, {"tokens", data.synthetic->tokens}}}};
  return {{"image", data.image},
          {"caption", data.caption},
          {"held_out", data.held_out},
          {"skip_bad_samples", data.skip_bad_samples},
          {"random_crop", data.random_crop},
          {"cached", data.cache_bytes > 0}};  // pictures then pass through 8 bits
}

}  // namespace

Json Recipe::identity() const {
  Json out = {{"seed", seed},
              {"precision", precision == Precision::kBF16 ? "bf16" : "f32"},
              {"data", identity_of(data)},
              {"model",
               {{"autoencoder", identity_of(model.autoencoder)},
                {"unet", identity_of(model.unet)},
                {"text_encoder", identity_of(model.text_encoder)},
                {"text_encoder_frozen", model.text_encoder && model.text_encoder->frozen}}},
              {"optimizer", identity_of(optimizer)},
              {"ema", identity_of(ema)},
              {"diffusion", identity_of(diffusion)},
              {"stages", Json::array()}};
  if (model.transformer) out["model"]["transformer"] = identity_of(model.transformer);
  if (model.text_encoder_2) {
    out["model"]["text_encoder_2"] = identity_of(model.text_encoder_2);
    out["model"]["text_encoder_2_frozen"] = model.text_encoder_2->frozen;
  }
  // How the model is shared out may change from one start to the next, what is computed may not.
  if (parallel.bf16_parameters)
    out["parallel"] = {{"parameters", "bf16"},
                       {"rounding", parallel.stochastic_rounding ? "stochastic" : "nearest"}};
  for (const StageRecipe& stage : stages) out["stages"].push_back(identity_of(stage, ema));
  return out;
}

}  // namespace yard::loop
