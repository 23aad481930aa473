#include "models/model_folder.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include "base/file.h"
#include "base/nearest_name.h"
#include "models/model_classes_internal.h"
#include "models/safetensors.h"
#include "tensor/guard_torch.h"

namespace yard::models {
namespace {

std::string class_name_in(const Json& config) {
  if (config.contains("_class_name") && config["_class_name"].is_string()) {
    return config["_class_name"].get<std::string>();
  }
  if (config.contains("architectures") && config["architectures"].is_array() &&
      !config["architectures"].empty() && config["architectures"][0].is_string()) {
    return config["architectures"][0].get<std::string>();
  }
  if (config.value("model_type", Json()) == Json("clip_text_model")) return "CLIPTextModel";
  return {};
}

// PixArt's files from before it had a class of its own.
bool is_old_pixart(const Json& config, const std::string& class_name) {
  return class_name == "Transformer2DModel" &&
         config.value("norm_type", Json()) == Json("ada_norm_single");
}

const ModelClass& class_of(ModelKind kind) {
  for (const ModelClass& entry : model_classes()) {
    if (entry.kind == kind) return entry;
  }
  YARD_UNREACHABLE();
}

// Buffers that older transformers wrote beside the weights.
bool is_buffer(const std::string& name) {
  return name.ends_with("position_ids");
}

void replace_part(std::string& name, std::string_view from, std::string_view to) {
  const size_t at = name.find(from);
  if (at != std::string::npos) name.replace(at, from.size(), to);
}

// Files of other versions of the reference packages name some parameters otherwise.
void rename_as_ours(ModelKind kind, std::string& name) {
  switch (kind) {
    case ModelKind::kUNet:
    case ModelKind::kPixArt:
    case ModelKind::kClipTextProjection:
    case ModelKind::kClip:
      return;
    case ModelKind::kAutoencoder:  // diffusers before 0.14
      replace_part(name, ".attentions.0.query.", ".attentions.0.to_q.");
      replace_part(name, ".attentions.0.key.", ".attentions.0.to_k.");
      replace_part(name, ".attentions.0.value.", ".attentions.0.to_v.");
      replace_part(name, ".attentions.0.proj_attn.", ".attentions.0.to_out.0.");
      return;
    case ModelKind::kClipText:  // transformers from 5.0
      if (!name.starts_with("text_model.")) name.insert(0, "text_model.");
      return;
  }
}

Error not_an_index(const std::string& path, const std::string& why) {
  return {Code::kCorrupt, path + ": " + why};
}

// The files that an index names, each once.
Result<std::set<std::string>> files_of_index(const std::string& path) {
  YARD_ASSIGN(const std::string text, read_file(path, kSafetensorsHeaderBytesMax));
  YARD_ASSIGN(const Json index, parse_json(text, path));
  const Json map = index.is_object() ? index.value("weight_map", Json()) : Json();
  if (!map.is_object()) return not_an_index(path, "no 'weight_map'");
  std::set<std::string> files;
  for (const auto& [tensor, file] : map.items()) {
    if (!file.is_string() || file.get<std::string>().find('/') != std::string::npos)
      return not_an_index(path, "tensor '" + tensor + "' is in no file of the folder");
    files.insert(file.get<std::string>());
  }
  return files;
}

// The tensors of a folder: of the one file, or of the several that its index names, as the
// reference packages write models over some gigabytes.
Result<std::vector<NamedTensor>> read_weights(const std::string& folder, std::string_view name) {
  const std::string path = folder + "/" + std::string(name);
  auto whole = read_safetensors(path);
  if (whole) return std::move(whole->tensors);
  auto files = files_of_index(path + ".index.json");
  if (whole.error().code != Code::kNotFound || (!files && files.error().code == Code::kNotFound))
    return std::move(whole).error();
  if (!files) return std::move(files).error();
  std::vector<NamedTensor> tensors;
  for (const std::string& file : *files) {
    YARD_ASSIGN(SafetensorsFile shard, read_safetensors(folder + "/" + file));
    std::ranges::move(shard.tensors, std::back_inserter(tensors));
  }
  return tensors;
}

template <typename Config>
Result<Config> read_config_of(const std::string& folder, ModelKind kind) {
  YARD_ASSIGN(const Json json, read_config(folder));
  const std::string what = folder + "/config.json";
  YARD_ASSIGN(const ModelKind found, kind_of(json, what));
  if (found != kind) {
    return Error{Code::kInvalidArgument, what + ": holds a " +
                                             std::string(class_of(found).class_name) + ", not a " +
                                             std::string(class_of(kind).class_name)};
  }
  return Config::parse(json, what);
}

Result<std::vector<NamedTensor>> read_weights_of(const std::string& folder, ModelKind kind) {
  YARD_ASSIGN(std::vector<NamedTensor> tensors, read_weights(folder, class_of(kind).weights_file));
  for (NamedTensor& t : tensors) rename_as_ours(kind, t.name);
  return tensors;
}

std::string weights_path(const std::string& folder, ModelKind kind) {
  return folder + "/" + std::string(class_of(kind).weights_file);
}

template <typename Model, typename Config>
Result<std::unique_ptr<Model>> load(const std::string& folder, ModelKind kind) {
  YARD_ASSIGN(const Config config, read_config_of<Config>(folder, kind));
  return tensor::guard_torch("loading " + folder, [&]() -> Result<std::unique_ptr<Model>> {
    auto model = std::make_unique<Model>(config, std::nullopt);
    YARD_ASSIGN(const auto tensors, read_weights_of(folder, kind));
    YARD_TRY(copy_parameters(tensors, model->parameters(), weights_path(folder, kind)));
    return model;
  });
}

// The tensors of `from` for each of `to`. Errors as copy_parameters().
Result<std::vector<NamedTensor>> match_parameters(const std::vector<NamedTensor>& from,
                                                  const std::vector<NamedTensor>& to,
                                                  const std::string& what) {
  std::map<std::string_view, const NamedTensor*> sources;
  for (const NamedTensor& t : from) sources.emplace(t.name, &t);
  std::set<std::string_view> wanted;
  std::vector<NamedTensor> matched;
  for (const NamedTensor& t : to) {
    wanted.insert(t.name);
    const auto it = sources.find(t.name);
    if (it == sources.end()) {
      return Error{Code::kInvalidArgument, what + ": tensor '" + t.name + "' is missing"};
    }
    matched.push_back(*it->second);
    if (matched.back().tensor.sizes() != t.tensor.sizes()) {
      return Error{Code::kInvalidArgument, what + ": tensor '" + t.name + "' has shape " +
                                               shape_text(matched.back().tensor.sizes()) +
                                               ", the model wants " + shape_text(t.tensor.sizes())};
    }
  }
  for (const NamedTensor& t : from) {
    if (!wanted.contains(t.name) && !is_buffer(t.name)) {
      return Error{Code::kInvalidArgument,
                   what + ": tensor '" + t.name + "' is not part of the model"};
    }
  }
  return matched;
}

template <typename Model, typename Config>
Result<MappedModel<Model>> map_kind(const std::string& folder, ModelKind kind) {
  YARD_ASSIGN(const Config config, read_config_of<Config>(folder, kind));
  return tensor::guard_torch("opening " + folder, [&]() -> Result<MappedModel<Model>> {
    constexpr uint64_t kNoSeed = 0;  // nothing is drawn: the files have the values
    MappedModel<Model> mapped{std::make_unique<Model>(config, WeightStart::later(kNoSeed)), {}};
    YARD_ASSIGN(const auto tensors, read_weights_of(folder, kind));
    YARD_ASSIGN(mapped.weights,
                match_parameters(tensors, mapped.model->parameters(), weights_path(folder, kind)));
    return mapped;
  });
}

// With or without a projection.
Result<ModelKind> clip_kind(const std::string& folder) {
  YARD_ASSIGN(const Json json, read_config(folder));
  YARD_ASSIGN(const ModelKind kind, kind_of(json, folder + "/config.json"));
  return kind == ModelKind::kClipTextProjection ? kind : ModelKind::kClipText;
}

}  // namespace

Result<Json> read_config(const std::string& folder) {
  YARD_ASSIGN(const std::string text, read_file(folder + "/config.json", uint64_t{1} << 20));
  return parse_json(text, folder + "/config.json");
}

Result<ModelKind> kind_of(const Json& config, const std::string& what) {
  const std::string name = config.is_object() ? class_name_in(config) : std::string();
  if (config.is_object() && is_old_pixart(config, name)) return ModelKind::kPixArt;
  std::vector<std::string_view> known;
  for (const ModelClass& entry : model_classes()) {
    if (entry.class_name == name) return entry.kind;
    known.push_back(entry.class_name);
  }
  return Error{Code::kInvalidArgument,
               what + ": model class '" + name + "' is not supported" + suggestion(name, known)};
}

Result<std::unique_ptr<UNet2DConditionModel>> load_unet(const std::string& folder) {
  return load<UNet2DConditionModel, UNetConfig>(folder, ModelKind::kUNet);
}

Result<std::unique_ptr<AutoencoderKL>> load_autoencoder(const std::string& folder) {
  return load<AutoencoderKL, AutoencoderConfig>(folder, ModelKind::kAutoencoder);
}

Result<std::unique_ptr<ClipTextModel>> load_clip_text(const std::string& folder) {
  YARD_ASSIGN(const ModelKind kind, clip_kind(folder));
  return load<ClipTextModel, ClipTextConfig>(folder, kind);
}

Result<std::unique_ptr<ClipModel>> load_clip(const std::string& folder) {
  return load<ClipModel, ClipConfig>(folder, ModelKind::kClip);
}

Result<std::unique_ptr<PixArtTransformer2DModel>> load_pixart(const std::string& folder) {
  return load<PixArtTransformer2DModel, PixArtConfig>(folder, ModelKind::kPixArt);
}

Result<MappedModel<UNet2DConditionModel>> map_unet(const std::string& folder) {
  return map_kind<UNet2DConditionModel, UNetConfig>(folder, ModelKind::kUNet);
}

Result<MappedModel<AutoencoderKL>> map_autoencoder(const std::string& folder) {
  return map_kind<AutoencoderKL, AutoencoderConfig>(folder, ModelKind::kAutoencoder);
}

Result<MappedModel<ClipTextModel>> map_clip_text(const std::string& folder) {
  YARD_ASSIGN(const ModelKind kind, clip_kind(folder));
  return map_kind<ClipTextModel, ClipTextConfig>(folder, kind);
}

Result<MappedModel<PixArtTransformer2DModel>> map_pixart(const std::string& folder) {
  return map_kind<PixArtTransformer2DModel, PixArtConfig>(folder, ModelKind::kPixArt);
}

Status copy_parameters(const std::vector<NamedTensor>& from, const std::vector<NamedTensor>& to,
                       const std::string& what) {
  YARD_ASSIGN(const std::vector<NamedTensor> sources, match_parameters(from, to, what));
  return tensor::guard_torch("copying from " + what, [&]() -> Status {
    c10::NoGradGuard no_grad;
    for (size_t i = 0; i < to.size(); ++i) to[i].tensor.copy_(sources[i].tensor);
    return Ok{};
  });
}

Status save_model(const std::string& folder, ModelKind kind, Json config,
                  const std::vector<NamedTensor>& parameters) {
  const ModelClass& entry = class_of(kind);
  if (entry.weights_file == kTransformersWeights) {
    config["architectures"] = {entry.class_name};
    config["model_type"] = kind == ModelKind::kClip ? "clip" : "clip_text_model";
    config["torch_dtype"] = "float32";
  } else {
    config["_class_name"] = entry.class_name;
  }
  // diffusers refuses a UNet that says it by the right name, see UNetConfig::head_counts.
  if (kind == ModelKind::kUNet && config.contains("num_attention_heads")) {
    if (!config["num_attention_heads"].is_null()) {
      config["attention_head_dim"] = config["num_attention_heads"];
    }
    config.erase("num_attention_heads");
  }
  YARD_TRY(make_directories(folder));
  YARD_TRY(write_safetensors(folder + "/" + std::string(entry.weights_file), parameters));
  return write_file_atomic(folder + "/config.json", config.dump(2) + "\n");
}

Result<std::unique_ptr<NamedModel>> NamedModel::load(const std::string& folder) {
  YARD_ASSIGN(const Json config, read_config(folder));
  YARD_ASSIGN(const ModelKind kind, kind_of(config, folder + "/config.json"));
  return class_of(kind).load(folder);
}

Status forward_file(const std::string& folder, const std::string& in_path,
                    const std::string& out_path) {
  YARD_ASSIGN(const auto model, NamedModel::load(folder));
  YARD_ASSIGN(const SafetensorsFile file, read_safetensors(in_path));
  NamedModel::Inputs inputs;
  for (const NamedTensor& t : file.tensors) inputs[t.name] = t.tensor;
  return tensor::guard_torch("forward pass of " + folder, [&]() -> Status {
    c10::NoGradGuard no_grad;
    YARD_ASSIGN(const std::vector<NamedTensor> outputs, model->forward(inputs, in_path));
    return write_safetensors(out_path, outputs);
  });
}

}  // namespace yard::models
