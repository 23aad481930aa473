// CLIPModel: captions and pictures in one space (Radford et al. 2021), with the parameter names and
// config.json keys of transformers. For looking at pictures; it is not trained here.
#pragma once

#include <memory>
#include <vector>

#include "base/result.h"
#include "models/clip_text.h"

namespace yard::models {

struct ClipVisionConfig {
  int64_t hidden_size = 768;
  int64_t intermediate_size = 3072;
  int64_t num_hidden_layers = 12;
  int64_t num_attention_heads = 12;
  int64_t image_size = 224;
  int64_t patch_size = 32;
  bool quick_gelu = true;
  double layer_norm_eps = 1e-5;
};

struct ClipConfig {
  ClipTextConfig text;  // with a projection
  ClipVisionConfig vision;
  int64_t projection_dim = 512;  // of both

  static Result<ClipConfig> parse(const Json& config, const std::string& what);
};

class ClipModel {
 public:
  ClipModel(const ClipConfig& config, WeightStart start);
  ~ClipModel();

  // input_ids [B, L] i64 -> [B, projection_dim], of length 1.
  at::Tensor embed_texts(const at::Tensor& input_ids,
                         const std::optional<at::Tensor>& attention_mask = std::nullopt) const;
  // pixel_values [B, 3, image_size, image_size], as pixel_values_of() gives -> the same.
  at::Tensor embed_pictures(const at::Tensor& pixel_values) const;
  // pictures [B, 3, H, W] in [-1, 1] -> as CLIPImageProcessor makes them of files: the shorter side
  // to image_size (bicubic), the middle square, CLIP's mean and deviation. Nothing is rounded.
  at::Tensor pixel_values_of(const at::Tensor& pictures) const;

  const std::vector<NamedTensor>& parameters() const { return all_; }
  const ClipConfig& config() const { return config_; }

 private:
  struct Vision;
  ClipConfig config_;
  ClipTextModel text_;
  ParameterList own_;
  std::unique_ptr<Vision> vision_;
  std::vector<NamedTensor> all_;
};

}  // namespace yard::models
