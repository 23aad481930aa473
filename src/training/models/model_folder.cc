#include "models/model_folder.h"

#include <ATen/ops/max.h>
#include <ATen/ops/min.h>
#include <c10/core/GradMode.h>

#include <array>
#include <map>

#include "base/file.h"
#include "base/nearest_name.h"
#include "models/safetensors.h"
#include "tensor/guard_torch.h"

namespace yard::models {
namespace {

using Inputs = std::map<std::string, at::Tensor>;
using Outputs = std::vector<NamedTensor>;

Result<Outputs> forward_unet(const std::string& folder, const Inputs& inputs,
                             const std::string& path);
Result<Outputs> forward_autoencoder(const std::string& folder, const Inputs& inputs,
                                    const std::string& path);
Result<Outputs> forward_clip_text(const std::string& folder, const Inputs& inputs,
                                  const std::string& path);

struct ClassEntry {
  ModelKind kind;
  std::string_view class_name;
  std::string_view weights_file;
  Result<Outputs> (*forward)(const std::string& folder, const Inputs& inputs,
                             const std::string& path);
};

constexpr std::array<ClassEntry, 3> kClasses = {{
    {ModelKind::kUNet, "UNet2DConditionModel", "diffusion_pytorch_model.safetensors", forward_unet},
    {ModelKind::kAutoencoder, "AutoencoderKL", "diffusion_pytorch_model.safetensors",
     forward_autoencoder},
    {ModelKind::kClipText, "CLIPTextModel", "model.safetensors", forward_clip_text},
}};

const ClassEntry& entry_of(ModelKind kind) {
  for (const ClassEntry& entry : kClasses) {
    if (entry.kind == kind) return entry;
  }
  YARD_UNREACHABLE();
}

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

std::string shape_text(at::IntArrayRef shape) {
  std::string text = "[";
  for (const int64_t side : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(side);
  return text + "]";
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

template <typename Model, typename Config>
Result<std::unique_ptr<Model>> load(const std::string& folder, ModelKind kind) {
  YARD_ASSIGN(const Json json, read_config(folder));
  const std::string what = folder + "/config.json";
  YARD_ASSIGN(const ModelKind found, kind_of(json, what));
  if (found != kind) {
    return Error{Code::kInvalidArgument, what + ": holds a " +
                                             std::string(entry_of(found).class_name) + ", not a " +
                                             std::string(entry_of(kind).class_name)};
  }
  YARD_ASSIGN(const Config config, Config::parse(json, what));
  return tensor::guard_torch("loading " + folder, [&]() -> Result<std::unique_ptr<Model>> {
    auto model = std::make_unique<Model>(config, std::nullopt);
    const std::string path = folder + "/" + std::string(entry_of(kind).weights_file);
    YARD_ASSIGN(SafetensorsFile file, read_safetensors(path));
    for (NamedTensor& t : file.tensors) rename_as_ours(kind, t.name);
    YARD_TRY(copy_parameters(file.tensors, model->parameters(), path));
    return model;
  });
}

}  // namespace

Result<Json> read_config(const std::string& folder) {
  YARD_ASSIGN(const std::string text, read_file(folder + "/config.json", uint64_t{1} << 20));
  return parse_json(text, folder + "/config.json");
}

Result<ModelKind> kind_of(const Json& config, const std::string& what) {
  const std::string name = config.is_object() ? class_name_in(config) : std::string();
  std::vector<std::string_view> known;
  for (const ClassEntry& entry : kClasses) {
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
  return load<ClipTextModel, ClipTextConfig>(folder, ModelKind::kClipText);
}

Status copy_parameters(const std::vector<NamedTensor>& from, const std::vector<NamedTensor>& to,
                       const std::string& what) {
  std::map<std::string_view, const at::Tensor*> sources;
  for (const NamedTensor& t : from) sources.emplace(t.name, &t.tensor);
  for (const NamedTensor& t : to) {
    const auto it = sources.find(t.name);
    if (it == sources.end()) {
      return Error{Code::kInvalidArgument, what + ": tensor '" + t.name + "' is missing"};
    }
    if (it->second->sizes() != t.tensor.sizes()) {
      return Error{Code::kInvalidArgument, what + ": tensor '" + t.name + "' has shape " +
                                               shape_text(it->second->sizes()) +
                                               ", the model wants " + shape_text(t.tensor.sizes())};
    }
  }
  std::map<std::string_view, bool> wanted;
  for (const NamedTensor& t : to) wanted.emplace(t.name, true);
  for (const NamedTensor& t : from) {
    if (!wanted.contains(t.name) && !is_buffer(t.name)) {
      return Error{Code::kInvalidArgument,
                   what + ": tensor '" + t.name + "' is not part of the model"};
    }
  }
  return tensor::guard_torch("copying from " + what, [&]() -> Status {
    c10::NoGradGuard no_grad;
    for (const NamedTensor& t : to) t.tensor.copy_(*sources.at(t.name));
    return Ok{};
  });
}

Status save_model(const std::string& folder, ModelKind kind, Json config,
                  const std::vector<NamedTensor>& parameters) {
  const ClassEntry& entry = entry_of(kind);
  if (kind == ModelKind::kClipText) {
    config["architectures"] = {entry.class_name};
    config["model_type"] = "clip_text_model";
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

namespace {

// What an input must be: -1 in a shape stands for any size of at least one.
struct Wanted {
  std::string name;
  std::vector<int64_t> shape;
  bool whole_numbers = false;
};

bool fits(at::IntArrayRef shape, const std::vector<int64_t>& wanted) {
  if (shape.size() != wanted.size()) return false;
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i] < 0 ? shape[i] < 1 : shape[i] != wanted[i]) return false;
  }
  return true;
}

Result<at::Tensor> take(const Inputs& inputs, const Wanted& wanted, const std::string& path) {
  const std::string what = path + ": input tensor '" + wanted.name + "'";
  const auto it = inputs.find(wanted.name);
  if (it == inputs.end()) return Error{Code::kInvalidArgument, what + " is missing"};
  const at::Tensor& tensor = it->second;
  if (!fits(tensor.sizes(), wanted.shape)) {
    return Error{Code::kInvalidArgument, what + " has shape " + shape_text(tensor.sizes()) +
                                             ", the model wants " + shape_text(wanted.shape) +
                                             " (-1: any)"};
  }
  if (wanted.whole_numbers && !at::isIntegralType(tensor.scalar_type(), false)) {
    return Error{Code::kInvalidArgument, what + " must hold whole numbers"};
  }
  return tensor.to(wanted.whole_numbers ? at::kLong : at::kFloat);
}

// H and W of pictures that a model halves several times.
Status check_divides(const at::Tensor& sample, int64_t factor, const std::string& path) {
  if (sample.size(2) % factor == 0 && sample.size(3) % factor == 0) return Ok{};
  return Error{Code::kInvalidArgument, path + ": height and width of 'sample', " +
                                           shape_text(sample.sizes()) + ", must be multiples of " +
                                           std::to_string(factor)};
}

Result<Outputs> forward_unet(const std::string& folder, const Inputs& inputs,
                             const std::string& path) {
  YARD_ASSIGN(const auto model, load_unet(folder));
  const UNetConfig& c = model->config();
  YARD_ASSIGN(const at::Tensor sample, take(inputs, {"sample", {-1, c.in_channels, -1, -1}}, path));
  YARD_TRY(check_divides(sample, c.downscale(), path));
  const int64_t batch = sample.size(0);
  YARD_ASSIGN(const at::Tensor context,
              take(inputs, {"encoder_hidden_states", {batch, -1, c.cross_attention_dim}}, path));
  Inputs times = inputs;
  const auto it = times.find("timestep");
  // The reference takes one time for the whole batch too.
  if (it != times.end() && it->second.numel() == 1) {
    it->second = it->second.reshape({1}).expand({batch});
  }
  YARD_ASSIGN(const at::Tensor timestep, take(times, {"timestep", {batch}}, path));
  return Outputs{{"sample", model->forward(sample, timestep, context)}};
}

Result<Outputs> forward_autoencoder(const std::string& folder, const Inputs& inputs,
                                    const std::string& path) {
  YARD_ASSIGN(const auto model, load_autoencoder(folder));
  const AutoencoderConfig& c = model->config();
  YARD_ASSIGN(const at::Tensor sample, take(inputs, {"sample", {-1, c.in_channels, -1, -1}}, path));
  YARD_TRY(check_divides(sample, c.downscale(), path));
  const LatentDistribution latents = model->encode(sample);
  return Outputs{{"latent_mean", latents.mean},
                 {"latent_logvar", latents.logvar},
                 {"sample", model->decode(latents.mean)}};
}

Result<Outputs> forward_clip_text(const std::string& folder, const Inputs& inputs,
                                  const std::string& path) {
  YARD_ASSIGN(const auto model, load_clip_text(folder));
  const ClipTextConfig& c = model->config();
  YARD_ASSIGN(const at::Tensor ids, take(inputs, {"input_ids", {-1, -1}, true}, path));
  if (ids.size(1) > c.max_position_embeddings || ids.min().item<int64_t>() < 0 ||
      ids.max().item<int64_t>() >= c.vocab_size) {
    return Error{Code::kInvalidArgument, path + ": 'input_ids' must be at most " +
                                             std::to_string(c.max_position_embeddings) +
                                             " ids from 0 to " + std::to_string(c.vocab_size - 1)};
  }
  const ClipTextOutput out = model->forward(ids);
  return Outputs{{"last_hidden_state", out.last_hidden_state},
                 {"pooler_output", out.pooler_output}};
}

}  // namespace

Status forward_file(const std::string& folder, const std::string& in_path,
                    const std::string& out_path) {
  YARD_ASSIGN(const Json config, read_config(folder));
  YARD_ASSIGN(const ModelKind kind, kind_of(config, folder + "/config.json"));
  YARD_ASSIGN(const SafetensorsFile file, read_safetensors(in_path));
  Inputs inputs;
  for (const NamedTensor& t : file.tensors) inputs[t.name] = t.tensor;
  return tensor::guard_torch("forward pass of " + folder, [&]() -> Status {
    c10::NoGradGuard no_grad;
    YARD_ASSIGN(const Outputs outputs, entry_of(kind).forward(folder, inputs, in_path));
    return write_safetensors(out_path, outputs);
  });
}

}  // namespace yard::models
