#include "loop/networks.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/random.h"
#include "loop/training_groups.h"
#include "models/model_folder.h"
#include "tensor/autocast.h"
#include "tensor/guard_torch.h"

namespace yard::loop {
namespace {

using models::NamedTensor;

// Streams of initial weights: parts share parameter names, not values.
enum : uint64_t {
  kAutoencoderStream = 1,
  kDenoiserStream = 2,
  kTextEncoderStream = 3,  // the second's: one more
};
// What files older than transformers 4.31 say, whatever the vocabulary.
constexpr int64_t kOldEndId = 2;

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

tensor::Activations activations_of(const Recipe& recipe) {
  return recipe.parallel.recompute_activations ? tensor::Activations::kRecomputed
                                               : tensor::Activations::kKept;
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

Error refused(std::string why) {
  return {Code::kInvalidArgument, std::move(why)};
}

// 1 up to the end of each caption, 0 behind it: what transformers' tokenizer gives.
at::Tensor mask_of(const at::Tensor& ids, int64_t end_id) {
  const at::Tensor is_end =
      (end_id == kOldEndId ? ids == ids.amax(1, /*keepdim=*/true) : ids == end_id).to(at::kLong);
  return (at::cumsum(is_end, 1) - is_end == 0).to(at::kLong);
}

}  // namespace

bool has_memory(const at::Tensor& parameter) {
  return parameter.numel() == 0 || parameter.storage().data() != nullptr;
}

void give_memory(const at::Tensor& parameter) {
  if (!has_memory(parameter))
    at::Tensor(parameter).set_data(at::empty(parameter.sizes(), at::kFloat));
}

std::string text_encoder_name(size_t index) {
  return index == 0 ? "text_encoder" : "text_encoder_2";
}

Result<std::unique_ptr<Networks>> Networks::create(const Recipe& recipe,
                                                   const CaptionTokenizer* tokenizer) {
  auto networks = std::unique_ptr<Networks>(new Networks());
  YARD_TRY(networks->build_autoencoder(recipe));
  YARD_TRY(networks->build_denoiser(recipe));
  YARD_TRY(networks->build_text_encoders(recipe, tokenizer));
  YARD_TRY(networks->check(tokenizer));
  return networks;
}

Status Networks::build_autoencoder(const Recipe& recipe) {
  if (!recipe.model.autoencoder) return Ok{};
  const ModelPart& part = *recipe.model.autoencoder;
  autoencoder_config_ = part.config;
  YARD_ASSIGN(autoencoder_,
              (make_part_now_or_later<models::AutoencoderKL, models::AutoencoderConfig>(
                  {part, "autoencoder", random_u64(recipe.seed, kAutoencoderStream, 0),
                   shards_parameters(recipe.parallel) ? &starts_ : nullptr},
                  models::load_autoencoder, models::map_autoencoder, autoencoder_config_)));
  autoencoder_->set_activations(activations_of(recipe));
  scaling_factor_ = autoencoder_->config().scaling_factor;
  fill_block_types(autoencoder_config_, autoencoder_->config().block_out_channels.size());
  return Ok{};
}

Status Networks::build_denoiser(const Recipe& recipe) {
  const ModelRecipe& model = recipe.model;
  if (!model.has_denoiser()) return Ok{};
  const ModelPart& part = model.unet ? *model.unet : *model.transformer;
  const PartPlan plan{part, model.unet ? "unet" : "transformer",
                      random_u64(recipe.seed, kDenoiserStream, 0),
                      shards_parameters(recipe.parallel) ? &starts_ : nullptr};
  denoiser_config_ = part.config;
  if (model.unet) {
    YARD_ASSIGN(auto unet,
                (make_part_now_or_later<models::UNet2DConditionModel, models::UNetConfig>(
                    plan, models::load_unet, models::map_unet, denoiser_config_)));
    YARD_ASSIGN(denoiser_, make_denoiser(std::move(unet)));
  } else {
    YARD_ASSIGN(auto transformer,
                (make_part_now_or_later<models::PixArtTransformer2DModel, models::PixArtConfig>(
                    plan, models::load_pixart, models::map_pixart, denoiser_config_)));
    YARD_ASSIGN(denoiser_, make_denoiser(std::move(transformer)));
  }
  denoiser_->set_activations(activations_of(recipe));
  return Ok{};
}

Status Networks::build_text_encoders(const Recipe& recipe, const CaptionTokenizer* tokenizer) {
  const ModelRecipe& model = recipe.model;
  for (const auto* part : {&model.text_encoder, &model.text_encoder_2}) {
    if (!*part) continue;
    const size_t index = text_encoders_.size();
    TextEncoder& encoder = text_encoders_.emplace_back();
    encoder.config = (*part)->config;
    encoder.frozen = (*part)->frozen;
    if (tokenizer != nullptr && (*part)->from.empty()) {
      encoder.config.emplace("bos_token_id", tokenizer->of_encoder(index).bos_id());
      encoder.config.emplace("eos_token_id", tokenizer->of_encoder(index).eos_id());
      encoder.config.emplace("pad_token_id", tokenizer->of_encoder(index).pad_id());
    }
    // Of the second one the whole caption's state is wanted too.
    if (index == 1 && (*part)->from.empty())
      encoder.config["architectures"] = {"CLIPTextModelWithProjection"};
    YARD_ASSIGN(encoder.model,
                (make_part_now_or_later<models::ClipTextModel, models::ClipTextConfig>(
                    {**part, text_encoder_name(index),
                     random_u64(recipe.seed, kTextEncoderStream + index, 0),
                     shards_parameters(recipe.parallel) ? &starts_ : nullptr},
                    models::load_clip_text, models::map_clip_text, encoder.config)));
    encoder.model->set_activations(activations_of(recipe));
  }
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

// Latents are brought to unit variance by scaling_factor alone.
bool is_moved(const models::AutoencoderConfig& autoencoder) {
  return autoencoder.shift_factor.value_or(0) != 0 || !autoencoder.latents_mean.empty();
}

}  // namespace

Status Networks::check(const CaptionTokenizer* tokenizer) const {
  if (autoencoder_ && autoencoder_->config().in_channels != 3)
    return refused("model.autoencoder: in_channels must be 3, pictures are RGB");
  if (autoencoder_ && is_moved(autoencoder_->config()))
    return refused(
        "model.autoencoder: training knows 'scaling_factor', not 'shift_factor' and "
        "'latents_mean'");
  if (denoiser_ && autoencoder_ && denoiser_->channels() != autoencoder_->config().latent_channels)
    return refused(fmt::format(
        "model.{}: in_channels {} must be the autoencoder's "
        "latent_channels {}",
        denoiser_->name(), denoiser_->channels(), autoencoder_->config().latent_channels));
  YARD_TRY(check_text(tokenizer));
  return denoiser_ && !text_encoders_.empty() ? check_context() : Ok{};
}

Status Networks::check_text(const CaptionTokenizer* tokenizer) const {
  for (size_t i = 0; i < text_encoders_.size(); ++i) {
    const models::ClipTextConfig& c = text_encoders_[i].model->config();
    const std::string name = "model." + text_encoder_name(i);
    if (c.with_projection != (i == 1))
      return refused(name + (i == 0 ? ": must be a CLIPTextModel, its projection is not trained"
                                    : ": must be a CLIPTextModelWithProjection"));
    if (c.max_position_embeddings != text_encoders_[0].model->config().max_position_embeddings)
      return refused(name + ": 'max_position_embeddings' must be that of the first text encoder");
    if (tokenizer == nullptr || tokenizer->of_encoder(i).vocab_size() <= c.vocab_size) continue;
    return refused(fmt::format("{}: vocab_size {} is too small for the {} tokens of {}", name,
                               c.vocab_size, tokenizer->of_encoder(i).vocab_size(),
                               tokenizer->folder(i)));
  }
  return Ok{};
}

Status Networks::check_context() const {
  const std::string name = fmt::format("model.{}", denoiser_->name());
  int64_t width = 0;
  for (const TextEncoder& encoder : text_encoders_) width += encoder.model->config().hidden_size;
  if (denoiser_->context_width() != width)
    return refused(
        fmt::format("{}: cross_attention_dim {} must be the text encoder's hidden_size {}{}", name,
                    denoiser_->context_width(), width,
                    text_encoders_.size() > 1 ? ", that of both together" : ""));
  const int64_t pooled = denoiser_->wants().pooled_width;
  if (pooled == 0 && text_encoders_.size() > 1)
    return refused(name + ": a text_encoder_2 is for one with 'addition_embed_type' text_time");
  if (pooled > 0 && text_encoders_.size() < 2)
    return refused(name + ": 'addition_embed_type' text_time needs model.text_encoder_2");
  if (pooled > 0 && pooled != text_encoders_[1].model->config().projection_dim)
    return refused(fmt::format(
        "{}: 'projection_class_embeddings_input_dim' leaves {} for a caption, the second text "
        "encoder's projection_dim is {}",
        name, pooled, text_encoders_[1].model->config().projection_dim));
  return Ok{};
}

ModelFactors Networks::factors() const {
  ModelFactors factors;
  if (autoencoder_) factors.autoencoder = autoencoder_->config().downscale();
  if (denoiser_) factors.denoiser = denoiser_->factor();
  return factors;
}

std::vector<size_t> Networks::caption_lengths() const {
  std::vector<size_t> lengths;
  for (const TextEncoder& encoder : text_encoders_)
    lengths.push_back(static_cast<size_t>(encoder.model->config().max_position_embeddings));
  return lengths;
}

bool Networks::text_is_frozen() const {
  return std::ranges::all_of(text_encoders_, [](const TextEncoder& e) { return e.frozen; });
}

DenoiserCondition Networks::encode_captions(const at::Tensor& ids, bool bf16) const {
  tensor::Autocast autocast(ids.device().type(), bf16);
  DenoiserCondition condition;
  std::vector<at::Tensor> contexts;
  int64_t begin = 0;
  for (const TextEncoder& encoder : text_encoders_) {
    const models::ClipTextConfig& c = encoder.model->config();
    const at::Tensor own = ids.narrow(1, begin, c.max_position_embeddings);
    begin += c.max_position_embeddings;
    if (denoiser_->wants().mask) condition.mask = mask_of(own, c.eos_token_id);
    const auto mask =
        condition.mask.defined() ? std::optional<at::Tensor>(condition.mask) : std::nullopt;
    const models::ClipTextOutput out = encoder.model->forward(own, mask);
    contexts.push_back(text_encoders_.size() > 1 ? out.penultimate_hidden_state()
                                                 : out.last_hidden_state);
    if (c.with_projection) condition.pooled = out.text_embeds;
  }
  condition.context = contexts.size() == 1 ? contexts.front() : at::cat(contexts, 2);
  return condition;
}

// Of two text encoders the first gives its last layer but one alone: what comes behind that gets
// no gradient.
bool Networks::is_used(size_t encoder_index, const std::string& parameter) const {
  if (text_encoders_.size() == 1 || encoder_index == 1) return true;
  const std::string last =
      fmt::format("text_model.encoder.layers.{}.",
                  text_encoders_[encoder_index].model->config().num_hidden_layers - 1);
  return !parameter.starts_with(last) && !parameter.starts_with("text_model.final_layer_norm.");
}

Result<std::vector<NamedTensor>> Networks::begin_training(Train train,
                                                          const std::vector<std::string>& freeze) {
  models::set_requires_grad(parameters(), false);
  std::vector<NamedTensor> trained;
  if (train == Train::kAutoencoder) {
    append(trained, "autoencoder.", autoencoder_->parameters());
  } else {
    for (size_t i = 0; i < text_encoders_.size(); ++i) {
      if (text_encoders_[i].frozen) continue;
      for (const NamedTensor& p : text_encoders_[i].model->parameters())
        if (is_used(i, p.name)) trained.push_back({text_encoder_name(i) + "." + p.name, p.tensor});
    }
    append(trained, fmt::format("{}.", denoiser_->name()), denoiser_->parameters());
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
  for (size_t i = 0; i < text_encoders_.size(); ++i)
    append(all, text_encoder_name(i) + ".", text_encoders_[i].model->parameters());
  if (denoiser_) append(all, fmt::format("{}.", denoiser_->name()), denoiser_->parameters());
  return all;
}

}  // namespace yard::loop
