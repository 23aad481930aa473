#include "loop/pipeline_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "base/file.h"
#include "base/nearest_name.h"
#include "loop/diffusion.h"
#include "models/model_folder.h"

namespace yard::loop {
namespace {

using models::NamedTensor;

constexpr std::string_view kOneEncoder = "StableDiffusionPipeline";
constexpr std::string_view kTwoEncoders = "StableDiffusionXLPipeline";
constexpr std::string_view kTransformer = "PixArtAlphaPipeline";

std::string_view pipeline_class(const Networks& networks) {
  if (networks.denoiser()->kind() == models::ModelKind::kPixArt) return kTransformer;
  return networks.text_encoders().size() > 1 ? kTwoEncoders : kOneEncoder;
}

std::string_view scheduler_class(const models::SchedulerConfig& scheduler) {
  return scheduler.kind == models::SchedulerKind::kDpmSolverMultistep
             ? "DPMSolverMultistepScheduler"
             : "DDIMScheduler";
}

std::string tokenizer_name(size_t index) {
  return index == 0 ? "tokenizer" : "tokenizer_2";
}

Json model_index(const Networks& networks, const models::SchedulerConfig& scheduler) {
  const std::string_view name = pipeline_class(networks);
  const Json none = {nullptr, nullptr};
  Json index = {{"_class_name", name},
                {"scheduler", {"diffusers", scheduler_class(scheduler)}},
                {"vae", {"diffusers", "AutoencoderKL"}}};
  const std::string denoiser(networks.denoiser()->name());
  index[denoiser] = {"diffusers", networks.denoiser()->kind() == models::ModelKind::kPixArt
                                      ? "PixArtTransformer2DModel"
                                      : "UNet2DConditionModel"};
  for (size_t i = 0; i < networks.text_encoders().size(); ++i) {
    index[text_encoder_name(i)] = {"transformers",
                                   i == 0 ? "CLIPTextModel" : "CLIPTextModelWithProjection"};
    index[tokenizer_name(i)] = {"transformers", "CLIPTokenizer"};
  }
  if (name == kTransformer) return index;
  index["feature_extractor"] = index["image_encoder"] = none;
  if (name == kOneEncoder)
    index.update({{"requires_safety_checker", false}, {"safety_checker", none}});
  else
    // Captions that were dropped in training were those without words.
    index["force_zeros_for_empty_prompt"] = false;
  return index;
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

// The parameters of one part with the values that take their place.
std::vector<NamedTensor> with_values(const std::string& prefix, std::vector<NamedTensor> parameters,
                                     const std::vector<NamedTensor>& instead) {
  std::map<std::string_view, const at::Tensor*> by_name;
  for (const NamedTensor& value : instead) by_name.emplace(value.name, &value.tensor);
  for (NamedTensor& p : parameters)
    if (const auto it = by_name.find(prefix + p.name); it != by_name.end()) p.tensor = *it->second;
  return parameters;
}

Status save_text(const Networks& networks, const std::string& dir, const Recipe& recipe,
                 const std::vector<NamedTensor>& instead) {
  for (size_t i = 0; i < networks.text_encoders().size(); ++i) {
    const TextEncoder& encoder = networks.text_encoders()[i];
    const std::string name = text_encoder_name(i);
    YARD_TRY(models::save_model(
        dir + "/" + name,
        i == 0 ? models::ModelKind::kClipText : models::ModelKind::kClipTextProjection,
        encoder.config, with_values(name + ".", encoder.model->parameters(), instead)));
    const bool own = i == 1 && !recipe.model.tokenizer_2.empty();
    YARD_TRY(copy_tokenizer(own ? recipe.model.tokenizer_2 : recipe.model.tokenizer,
                            dir + "/" + tokenizer_name(i),
                            encoder.model->config().max_position_embeddings));
  }
  return Ok{};
}

}  // namespace

Status save_autoencoder(const Networks& networks, const std::string& dir, int64_t sample_side,
                        const std::vector<NamedTensor>& instead) {
  Json config = networks.autoencoder_config();
  config["scaling_factor"] = networks.scaling_factor();
  config["sample_size"] = sample_side;
  return models::save_model(
      dir, models::ModelKind::kAutoencoder, std::move(config),
      with_values("autoencoder.", networks.autoencoder()->parameters(), instead));
}

Status save_pipeline(const Networks& networks, const std::string& dir, const Recipe& recipe,
                     int64_t sample_side, const std::vector<NamedTensor>& instead) {
  YARD_TRY(save_autoencoder(networks, dir + "/vae", sample_side, instead));
  const Denoiser& denoiser = *networks.denoiser();
  const std::string name(denoiser.name());
  YARD_TRY(models::save_model(
      dir + "/" + name, denoiser.kind(),
      denoiser.saved_config(networks.denoiser_config(),
                            sample_side / networks.autoencoder()->config().downscale()),
      with_values(name + ".", denoiser.parameters(), instead)));
  YARD_TRY(save_text(networks, dir, recipe, instead));
  const models::SchedulerConfig scheduler = scheduler_of(recipe.diffusion);
  YARD_TRY(models::save_scheduler(dir + "/scheduler", scheduler));
  return write_json(dir + "/model_index.json", model_index(networks, scheduler));
}

namespace {

// Sides of latents by the denoiser's own configuration.
Result<int64_t> default_side(const std::string& dir, const std::string& denoiser) {
  YARD_ASSIGN(const Json network, models::read_config(dir + "/" + denoiser));
  YARD_ASSIGN(const Json autoencoder, models::read_config(dir + "/vae"));
  YARD_ASSIGN(const auto parsed,
              models::AutoencoderConfig::parse(autoencoder, dir + "/vae/config.json"));
  const Json latents = network.value("sample_size", Json(64));
  return (latents.is_number_integer() ? latents.get<int64_t>() : 64) * parsed.downscale();
}

}  // namespace

Result<PipelineFolder> read_pipeline(const std::string& dir) {
  const std::string path = dir + "/model_index.json";
  YARD_ASSIGN(const std::string text, read_file(path, uint64_t{1} << 20));
  YARD_ASSIGN(const Json index, parse_json(text, path));
  YARD_ASSIGN(const auto name, json_field<std::string>(index, "_class_name", path));
  const std::vector<std::string_view> known = {kOneEncoder, kTwoEncoders, kTransformer};
  if (std::ranges::find(known, name) == known.end())
    return Error{Code::kInvalidArgument, fmt::format("{}: pipeline class '{}' is not supported{}",
                                                     path, name, suggestion(name, known))};
  PipelineFolder found;
  ModelRecipe& model = found.recipe.model;
  const auto part = [&](const std::string& folder) {
    return ModelPart{.from = dir + "/" + folder, .config = Json::object(), .frozen = true};
  };
  const std::string denoiser = name == kTransformer ? "transformer" : "unet";
  (name == kTransformer ? model.transformer : model.unet) = part(denoiser);
  model.autoencoder = part("vae");
  model.text_encoder = part("text_encoder");
  model.tokenizer = dir + "/tokenizer";
  if (name == kTwoEncoders) {
    model.text_encoder_2 = part("text_encoder_2");
    model.tokenizer_2 = dir + "/tokenizer_2";
  }
  YARD_ASSIGN(found.scheduler, models::read_scheduler(dir + "/scheduler"));
  YARD_ASSIGN(found.side, default_side(dir, denoiser));
  return found;
}

}  // namespace yard::loop
