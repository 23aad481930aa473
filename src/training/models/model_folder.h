// A model as a folder: config.json and one safetensors file, as diffusers and transformers keep it.
//
// "_class_name" (diffusers) or "architectures" (transformers) chooses the class: a new model is
// one class and one line of the table in model_classes.cc.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "models/autoencoder_kl.h"
#include "models/clip.h"
#include "models/clip_text.h"
#include "models/pixart_transformer_2d.h"
#include "models/unet_2d_condition.h"

namespace yard::models {

enum class ModelKind { kUNet, kAutoencoder, kClipText, kClipTextProjection, kClip, kPixArt };

// The folder's config.json; kNotFound, kInvalidArgument as they come.
Result<Json> read_config(const std::string& folder);
// By "_class_name", "architectures" or "model_type".
Result<ModelKind> kind_of(const Json& config, const std::string& what);

Result<std::unique_ptr<UNet2DConditionModel>> load_unet(const std::string& folder);
Result<std::unique_ptr<AutoencoderKL>> load_autoencoder(const std::string& folder);
// With or without a projection.
Result<std::unique_ptr<ClipTextModel>> load_clip_text(const std::string& folder);
// Both towers.
Result<std::unique_ptr<ClipModel>> load_clip(const std::string& folder);
Result<std::unique_ptr<PixArtTransformer2DModel>> load_pixart(const std::string& folder);

// A model whose parameters have no memory yet (WeightStart::later), and what its folder holds for
// each of them, in their order: views of mapped files, of which nothing is read before it is used.
template <typename Model>
struct MappedModel {
  std::unique_ptr<Model> model;
  std::vector<NamedTensor> weights;
};
// Errors as of loading.
Result<MappedModel<UNet2DConditionModel>> map_unet(const std::string& folder);
Result<MappedModel<AutoencoderKL>> map_autoencoder(const std::string& folder);
Result<MappedModel<ClipTextModel>> map_clip_text(const std::string& folder);
Result<MappedModel<PixArtTransformer2DModel>> map_pixart(const std::string& folder);

// Copies `from` into the parameters of the same name, converting the dtype. kInvalidArgument names
// the first tensor that is missing, of another shape, or not a parameter; `what` names the source.
Status copy_parameters(const std::vector<NamedTensor>& from, const std::vector<NamedTensor>& to,
                       const std::string& what);

// Writes config.json (with the class's name added) and the weights file that the reference looks
// for. `config`: the keys the model was made from. The folder is made where it is missing.
Status save_model(const std::string& folder, ModelKind kind, Json config,
                  const std::vector<NamedTensor>& parameters);

// A model of whatever class, called by the names of the reference's arguments.
class NamedModel {
 public:
  using Inputs = std::map<std::string, at::Tensor>;

  // kNotFound, kInvalidArgument, kCorrupt as the folder gives cause.
  static Result<std::unique_ptr<NamedModel>> load(const std::string& folder);
  virtual ~NamedModel() = default;

  // One forward pass (docs/formats/models.md lists inputs and outputs of each class).
  // kInvalidArgument names an input that is missing or of a wrong shape; `what` their source.
  // libtorch's exceptions pass: call inside guard_torch().
  virtual Result<std::vector<NamedTensor>> forward(const Inputs& inputs,
                                                   const std::string& what) const = 0;
  virtual const std::vector<NamedTensor>& parameters() const = 0;
};

// One forward pass of the model in `folder` on the tensors of `in_path`; its outputs become
// `out_path`.
Status forward_file(const std::string& folder, const std::string& in_path,
                    const std::string& out_path);

}  // namespace yard::models
