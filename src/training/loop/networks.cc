#include "loop/networks.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <fnmatch.h>

#include <set>
#include <utility>

#include "base/file.h"
#include "base/random.h"
#include "loop/training_groups.h"
#include "models/model_folder.h"
#include "tensor/guard_torch.h"

namespace yard::loop {
namespace {

using models::NamedTensor;

// Streams of initial weights: parts share parameter names, not values.
enum : uint64_t { kAutoencoderStream = 1, kUNetStream = 2, kTextEncoderStream = 3 };

using Starts = std::map<std::string, std::function<void(at::Tensor& out)>>;

struct PartPlan {
  const ModelPart& part;
  std::string name;
  uint64_t seed;
  Starts* starts;  // null: the part has memory at once
};

// Makes the model of a part, or loads it, and its configuration as given.
template <typename Model, typename Config, typename Load>
Result<std::unique_ptr<Model>> make_part(const PartPlan& plan, Load load, Json& config) {
  if (!plan.part.from.empty()) {
    YARD_ASSIGN(config, models::read_config(plan.part.from));
    return load(plan.part.from);
  }
  YARD_ASSIGN(const Config parsed, Config::parse(config, "model." + plan.name));
  return tensor::guard_torch("making the " + plan.name, [&]() -> Result<std::unique_ptr<Model>> {
    return std::make_unique<Model>(parsed, plan.seed);
  });
}

// The same without memory: `plan.starts` says how each parameter starts. The model must outlive it.
template <typename Model, typename Config, typename Map>
Result<std::unique_ptr<Model>> make_part_later(const PartPlan& plan, Map map, Json& config) {
  const std::string prefix = plan.name + ".";
  if (!plan.part.from.empty()) {
    YARD_ASSIGN(config, models::read_config(plan.part.from));
    YARD_ASSIGN(models::MappedModel<Model> mapped, map(plan.part.from));
    for (const NamedTensor& source : mapped.weights)
      plan.starts->emplace(prefix + source.name,
                           [source](at::Tensor& out) { out.copy_(source.tensor); });
    return std::move(mapped.model);
  }
  YARD_ASSIGN(const Config parsed, Config::parse(config, "model." + plan.name));
  auto model = std::make_unique<Model>(parsed, models::WeightStart::later(plan.seed));
  const models::ParameterList& list = model->parameter_list();
  for (size_t i = 0; i < list.all().size(); ++i)
    plan.starts->emplace(prefix + list.all()[i].name,
                         [&list, i](at::Tensor& out) { list.start(i, out); });
  return model;
}

template <typename Model, typename Config, typename Load, typename Map>
Result<std::unique_ptr<Model>> make_part_now_or_later(const PartPlan& plan, Load load, Map map,
                                                      Json& config) {
  if (plan.starts == nullptr) return make_part<Model, Config>(plan, load, config);
  return tensor::guard_torch("making the " + plan.name,
                             [&] { return make_part_later<Model, Config>(plan, map, config); });
}

int64_t factor_of(size_t block_count) {
  return int64_t{1} << (block_count - 1);
}

void append(std::vector<NamedTensor>& out, const std::string& prefix,
            const std::vector<NamedTensor>& parameters) {
  for (const NamedTensor& p : parameters) out.push_back({prefix + p.name, p.tensor});
}

// diffusers has no rule that repeats one block type: the list must be there in full.
void fill_block_types(Json& config, size_t block_count) {
  if (!config.contains("down_block_types"))
    config["down_block_types"] = std::vector<std::string>(block_count, "DownEncoderBlock2D");
  if (!config.contains("up_block_types"))
    config["up_block_types"] = std::vector<std::string>(block_count, "UpDecoderBlock2D");
}

std::string_view scheduler_class(const DiffusionRecipe& diffusion) {
  return diffusion.prediction == Prediction::kFlow ? "DPMSolverMultistepScheduler"
                                                   : "DDIMScheduler";
}

Json model_index(const DiffusionRecipe& diffusion) {
  return {{"_class_name", "StableDiffusionPipeline"},
          {"feature_extractor", {nullptr, nullptr}},
          {"image_encoder", {nullptr, nullptr}},
          {"requires_safety_checker", false},
          {"safety_checker", {nullptr, nullptr}},
          {"scheduler", {"diffusers", scheduler_class(diffusion)}},
          {"text_encoder", {"transformers", "CLIPTextModel"}},
          {"tokenizer", {"transformers", "CLIPTokenizer"}},
          {"unet", {"diffusers", "UNet2DConditionModel"}},
          {"vae", {"diffusers", "AutoencoderKL"}}};
}

std::string_view name_of(BetaSchedule schedule) {
  switch (schedule) {
    case BetaSchedule::kLinear:
      return "linear";
    case BetaSchedule::kScaledLinear:
      return "scaled_linear";
    case BetaSchedule::kSquaredCosCap:
      return "squaredcos_cap_v2";
  }
  YARD_UNREACHABLE();
}

std::string_view name_of(Prediction prediction) {
  switch (prediction) {
    case Prediction::kEpsilon:
      return "epsilon";
    case Prediction::kVelocity:
      return "v_prediction";
    case Prediction::kSample:
      return "sample";
    case Prediction::kFlow:
      return "flow_prediction";
  }
  YARD_UNREACHABLE();
}

// The sampler of loop/diffusion.h in diffusers' words.
Json scheduler_config(const DiffusionRecipe& d) {
  if (d.prediction == Prediction::kFlow)
    return {{"_class_name", scheduler_class(d)},
            {"num_train_timesteps", d.train_timesteps},
            {"prediction_type", name_of(d.prediction)},
            {"use_flow_sigmas", true},
            {"flow_shift", d.flow_shift},
            {"algorithm_type", "dpmsolver++"},
            {"solver_order", 1},
            {"steps_offset", 1}};
  return {{"_class_name", scheduler_class(d)},
          {"num_train_timesteps", d.train_timesteps},
          {"beta_schedule", name_of(d.beta_schedule)},
          {"beta_start", d.beta_start},
          {"beta_end", d.beta_end},
          {"prediction_type", name_of(d.prediction)},
          {"clip_sample", false},
          {"set_alpha_to_one", false},
          {"rescale_betas_zero_snr", d.zero_terminal_snr},
          {"steps_offset", 1},
          {"timestep_spacing", d.zero_terminal_snr ? "trailing" : "leading"}};
}

Status write_json(const std::string& path, const Json& json) {
  return write_file_atomic(path, json.dump(2) + "\n");
}

Status copy_tokenizer(const std::string& from, const std::string& to, int64_t length) {
  YARD_TRY(make_directories(to));
  for (const char* file : {"vocab.json", "merges.txt", "special_tokens_map.json"}) {
    auto content = read_file(from + "/" + file);
    if (!content && content.error().code == Code::kNotFound) continue;
    if (!content) return std::move(content).error();
    YARD_TRY(write_file_atomic(to + "/" + file, *content));
  }
  Json config = {{"tokenizer_class", "CLIPTokenizer"}};
  if (auto given = read_file(from + "/tokenizer_config.json")) {
    YARD_ASSIGN(config, parse_json(*given, from + "/tokenizer_config.json"));
  }
  config["model_max_length"] = length;
  return write_json(to + "/tokenizer_config.json", config);
}

}  // namespace

bool has_memory(const at::Tensor& parameter) {
  return parameter.numel() == 0 || parameter.storage().data() != nullptr;
}

void give_memory(const at::Tensor& parameter) {
  if (!has_memory(parameter))
    at::Tensor(parameter).set_data(at::empty(parameter.sizes(), at::kFloat));
}

Result<std::unique_ptr<Networks>> Networks::create(const Recipe& recipe,
                                                   const text::ClipTokenizer* tokenizer) {
  auto networks = std::unique_ptr<Networks>(new Networks());
  YARD_TRY(networks->build(recipe, tokenizer));
  YARD_TRY(networks->check(recipe, tokenizer));
  return networks;
}

Status Networks::build(const Recipe& recipe, const text::ClipTokenizer* tokenizer) {
  const ModelRecipe& model = recipe.model;
  Starts* const starts = shards_parameters(recipe.parallel) ? &starts_ : nullptr;
  const auto plan = [&](const ModelPart& part, const char* name, uint64_t stream) {
    return PartPlan{part, name, random_u64(recipe.seed, stream, 0), starts};
  };
  const auto activations = recipe.parallel.recompute_activations ? tensor::Activations::kRecomputed
                                                                 : tensor::Activations::kKept;
  if (model.autoencoder) {
    autoencoder_config_ = model.autoencoder->config;
    YARD_ASSIGN(autoencoder_,
                (make_part_now_or_later<models::AutoencoderKL, models::AutoencoderConfig>(
                    plan(*model.autoencoder, "autoencoder", kAutoencoderStream),
                    models::load_autoencoder, models::map_autoencoder, autoencoder_config_)));
    autoencoder_->set_activations(activations);
    scaling_factor_ = autoencoder_->config().scaling_factor;
    fill_block_types(autoencoder_config_, autoencoder_->config().block_out_channels.size());
  }
  if (model.unet) {
    unet_config_ = model.unet->config;
    YARD_ASSIGN(unet_, (make_part_now_or_later<models::UNet2DConditionModel, models::UNetConfig>(
                           plan(*model.unet, "unet", kUNetStream), models::load_unet,
                           models::map_unet, unet_config_)));
    unet_->set_activations(activations);
  }
  if (!model.text_encoder) return Ok{};
  text_encoder_config_ = model.text_encoder->config;
  if (tokenizer != nullptr && model.text_encoder->from.empty()) {
    text_encoder_config_.emplace("bos_token_id", tokenizer->bos_id());
    text_encoder_config_.emplace("eos_token_id", tokenizer->eos_id());
    text_encoder_config_.emplace("pad_token_id", tokenizer->pad_id());
  }
  text_encoder_frozen_ = model.text_encoder_frozen;
  YARD_ASSIGN(text_encoder_,
              (make_part_now_or_later<models::ClipTextModel, models::ClipTextConfig>(
                  plan(*model.text_encoder, "text_encoder", kTextEncoderStream),
                  models::load_clip_text, models::map_clip_text, text_encoder_config_)));
  text_encoder_->set_activations(activations);
  return Ok{};
}

void Networks::start(const NamedTensor& parameter, at::Tensor& out) const {
  if (has_memory(parameter.tensor))
    out.copy_(parameter.tensor.detach());
  else
    starts_.at(parameter.name)(out);
}

void Networks::fill_in(Train train, const std::vector<NamedTensor>& trained) {
  if (starts_.empty()) return;
  std::set<std::string_view> others;
  for (const NamedTensor& p : trained) others.insert(p.name);
  for (const NamedTensor& p : parameters()) {
    // What trains the autoencoder uses nothing else.
    const bool used = train != Train::kAutoencoder || p.name.starts_with("autoencoder.");
    if (!used || others.contains(p.name) || has_memory(p.tensor)) continue;
    give_memory(p.tensor);
    at::Tensor values = p.tensor.detach();
    starts_.at(p.name)(values);
  }
}

namespace {

// What a denoiser wants beside time and context, which is all that a caption gives; empty: nothing.
std::string_view unanswered(const models::UNetConfig& unet) {
  if (unet.class_embedding != models::ClassEmbedding::kNone) return "class labels";
  if (unet.addition_time_embed_dim > 0) return "'addition_embed_type' text_time";
  return {};
}

// Latents are brought to unit variance by scaling_factor alone.
bool is_moved(const models::AutoencoderConfig& autoencoder) {
  return autoencoder.shift_factor.value_or(0) != 0 || !autoencoder.latents_mean.empty();
}

}  // namespace

Status Networks::check(const Recipe& recipe, const text::ClipTokenizer* tokenizer) const {
  const auto refuse = [](std::string why) { return Error{Code::kInvalidArgument, std::move(why)}; };
  if (autoencoder_ && autoencoder_->config().in_channels != 3)
    return refuse("model.autoencoder: in_channels must be 3, pictures are RGB");
  if (unet_ && unet_->config().in_channels != unet_->config().out_channels)
    return refuse("model.unet: in_channels and out_channels must be equal");
  if (unet_ && !unanswered(unet_->config()).empty())
    return refuse(fmt::format("model.unet: it wants {}, training has captions alone",
                              unanswered(unet_->config())));
  if (autoencoder_ && is_moved(autoencoder_->config()))
    return refuse(
        "model.autoencoder: training knows 'scaling_factor', not 'shift_factor' and "
        "'latents_mean'");
  if (text_encoder_ && text_encoder_->config().with_projection)
    return refuse("model.text_encoder: must be a CLIPTextModel, its projection is not trained");
  if (unet_ && autoencoder_ &&
      unet_->config().in_channels != autoencoder_->config().latent_channels)
    return refuse(
        fmt::format("model.unet: in_channels {} must be the autoencoder's latent_channels {}",
                    unet_->config().in_channels, autoencoder_->config().latent_channels));
  if (unet_ && text_encoder_ &&
      unet_->config().context_width() != text_encoder_->config().hidden_size)
    return refuse(
        fmt::format("model.unet: cross_attention_dim {} must be the text encoder's "
                    "hidden_size {}",
                    unet_->config().context_width(), text_encoder_->config().hidden_size));
  if (text_encoder_ && tokenizer != nullptr &&
      tokenizer->vocab_size() > text_encoder_->config().vocab_size)
    return refuse(fmt::format(
        "model.text_encoder: vocab_size {} is too small for the {} tokens of {}",
        text_encoder_->config().vocab_size, tokenizer->vocab_size(), recipe.model.tokenizer));
  return Ok{};
}

ModelFactors Networks::factors() const {
  ModelFactors factors;
  if (autoencoder_) factors.autoencoder = autoencoder_->config().downscale();
  if (unet_) factors.unet = factor_of(unet_->config().block_out_channels.size());
  return factors;
}

Result<std::vector<NamedTensor>> Networks::begin_training(Train train,
                                                          const std::vector<std::string>& freeze) {
  models::set_requires_grad(parameters(), false);
  std::vector<NamedTensor> trained;
  if (train == Train::kAutoencoder) {
    append(trained, "autoencoder.", autoencoder_->parameters());
  } else {
    if (text_encoder_ && !text_encoder_frozen_)
      append(trained, "text_encoder.", text_encoder_->parameters());
    append(trained, "unet.", unet_->parameters());
  }
  for (const std::string& pattern : freeze) {
    const size_t removed = std::erase_if(trained, [&](const NamedTensor& p) {
      return fnmatch(pattern.c_str(), p.name.c_str(), 0) == 0;
    });
    if (removed == 0)
      return Error{Code::kInvalidArgument,
                   fmt::format("freeze: no parameter that is trained matches '{}'; names are as "
                               "'{}'",
                               pattern, trained.empty() ? "unet.conv_in.weight" : trained[0].name)};
  }
  if (trained.empty())
    return Error{Code::kInvalidArgument, "freeze: every parameter is frozen, nothing to train"};
  models::set_requires_grad(trained, true);
  return trained;
}

std::vector<NamedTensor> Networks::parameters() const {
  std::vector<NamedTensor> all;
  if (autoencoder_) append(all, "autoencoder.", autoencoder_->parameters());
  if (text_encoder_) append(all, "text_encoder.", text_encoder_->parameters());
  if (unet_) append(all, "unet.", unet_->parameters());
  return all;
}

namespace {

// The parameters of one part with the values that take their place.
std::vector<NamedTensor> with_values(const std::string& prefix, std::vector<NamedTensor> parameters,
                                     const std::vector<NamedTensor>& instead) {
  std::map<std::string_view, const at::Tensor*> by_name;
  for (const NamedTensor& value : instead) by_name.emplace(value.name, &value.tensor);
  for (NamedTensor& p : parameters)
    if (const auto it = by_name.find(prefix + p.name); it != by_name.end()) p.tensor = *it->second;
  return parameters;
}

}  // namespace

Status Networks::save_autoencoder(const std::string& dir, int64_t sample_side,
                                  const std::vector<NamedTensor>& instead) const {
  Json config = autoencoder_config_;
  config["scaling_factor"] = scaling_factor_;
  config["sample_size"] = sample_side;
  return models::save_model(dir, models::ModelKind::kAutoencoder, std::move(config),
                            with_values("autoencoder.", autoencoder_->parameters(), instead));
}

Status Networks::save_pipeline(const std::string& dir, const Recipe& recipe, int64_t sample_side,
                               const std::vector<NamedTensor>& instead) const {
  YARD_TRY(save_autoencoder(dir + "/vae", sample_side, instead));
  Json unet_config = unet_config_;
  unet_config["sample_size"] = sample_side / autoencoder_->config().downscale();
  YARD_TRY(models::save_model(dir + "/unet", models::ModelKind::kUNet, std::move(unet_config),
                              with_values("unet.", unet_->parameters(), instead)));
  YARD_TRY(models::save_model(dir + "/text_encoder", models::ModelKind::kClipText,
                              text_encoder_config_,
                              with_values("text_encoder.", text_encoder_->parameters(), instead)));
  YARD_TRY(copy_tokenizer(recipe.model.tokenizer, dir + "/tokenizer",
                          text_encoder_->config().max_position_embeddings));
  YARD_TRY(make_directories(dir + "/scheduler"));
  YARD_TRY(
      write_json(dir + "/scheduler/scheduler_config.json", scheduler_config(recipe.diffusion)));
  return write_json(dir + "/model_index.json", model_index(recipe.diffusion));
}

}  // namespace yard::loop
