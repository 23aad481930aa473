// The table of model classes.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "models/model_folder.h"

namespace yard::models {

// The weights file of a model, by the reference package.
inline constexpr std::string_view kDiffusersWeights = "diffusion_pytorch_model.safetensors";
inline constexpr std::string_view kTransformersWeights = "model.safetensors";

struct ModelClass {
  ModelKind kind;
  std::string_view class_name;
  std::string_view weights_file;
  Result<std::unique_ptr<NamedModel>> (*load)(const std::string& folder);
};

std::span<const ModelClass> model_classes();

std::string shape_text(at::IntArrayRef shape);

}  // namespace yard::models
