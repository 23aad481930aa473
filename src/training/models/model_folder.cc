#include "models/model_folder.h"

#include <c10/core/GradMode.h>

#include <array>
#include <map>

#include "base/file.h"
#include "base/nearest_name.h"
#include "models/safetensors.h"
#include "tensor/guard_torch.h"

namespace yard::models {
namespace {

struct ClassEntry {
  ModelKind kind;
  std::string_view class_name;
  std::string_view weights_file;
};

constexpr std::array<ClassEntry, 3> kClasses = {{
    {ModelKind::kUNet, "UNet2DConditionModel", "diffusion_pytorch_model.safetensors"},
    {ModelKind::kAutoencoder, "AutoencoderKL", "diffusion_pytorch_model.safetensors"},
    {ModelKind::kClipText, "CLIPTextModel", "model.safetensors"},
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

// transformers 5 dropped the "text_model." that every earlier file has.
void add_clip_prefix(std::vector<NamedTensor>& tensors) {
  constexpr std::string_view kPrefix = "text_model.";
  for (NamedTensor& t : tensors) {
    if (!t.name.starts_with(kPrefix)) t.name.insert(0, kPrefix);
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
    if (kind == ModelKind::kClipText) add_clip_prefix(file.tensors);
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
  YARD_TRY(make_directories(folder));
  YARD_TRY(write_safetensors(folder + "/" + std::string(entry.weights_file), parameters));
  return write_file_atomic(folder + "/config.json", config.dump(2) + "\n");
}

namespace {

using Inputs = std::map<std::string, at::Tensor>;

Result<at::Tensor> input(const Inputs& inputs, const std::string& name, const std::string& path) {
  const auto it = inputs.find(name);
  if (it != inputs.end()) return it->second;
  return Error{Code::kInvalidArgument, path + ": input tensor '" + name + "' is missing"};
}

Result<std::vector<NamedTensor>> forward_unet(const std::string& folder, const Inputs& inputs,
                                              const std::string& path) {
  YARD_ASSIGN(const auto model, load_unet(folder));
  YARD_ASSIGN(const at::Tensor sample, input(inputs, "sample", path));
  YARD_ASSIGN(at::Tensor timestep, input(inputs, "timestep", path));
  YARD_ASSIGN(const at::Tensor context, input(inputs, "encoder_hidden_states", path));
  if (timestep.numel() == 1) timestep = timestep.reshape({1}).expand({sample.size(0)});
  return std::vector<NamedTensor>{{"sample", model->forward(sample, timestep, context)}};
}

Result<std::vector<NamedTensor>> forward_autoencoder(const std::string& folder,
                                                     const Inputs& inputs,
                                                     const std::string& path) {
  YARD_ASSIGN(const auto model, load_autoencoder(folder));
  YARD_ASSIGN(const at::Tensor sample, input(inputs, "sample", path));
  const LatentDistribution latents = model->encode(sample);
  return std::vector<NamedTensor>{{"latent_mean", latents.mean},
                                  {"latent_logvar", latents.logvar},
                                  {"sample", model->decode(latents.mean)}};
}

Result<std::vector<NamedTensor>> forward_clip_text(const std::string& folder, const Inputs& inputs,
                                                   const std::string& path) {
  YARD_ASSIGN(const auto model, load_clip_text(folder));
  YARD_ASSIGN(const at::Tensor ids, input(inputs, "input_ids", path));
  const ClipTextOutput out = model->forward(ids);
  return std::vector<NamedTensor>{{"last_hidden_state", out.last_hidden_state},
                                  {"pooler_output", out.pooler_output}};
}

Result<std::vector<NamedTensor>> forward_of(ModelKind kind, const std::string& folder,
                                            const Inputs& inputs, const std::string& path) {
  switch (kind) {
    case ModelKind::kUNet:
      return forward_unet(folder, inputs, path);
    case ModelKind::kAutoencoder:
      return forward_autoencoder(folder, inputs, path);
    case ModelKind::kClipText:
      return forward_clip_text(folder, inputs, path);
  }
  YARD_UNREACHABLE();
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
    YARD_ASSIGN(const auto outputs, forward_of(kind, folder, inputs, in_path));
    return write_safetensors(out_path, outputs);
  });
}

}  // namespace yard::models
