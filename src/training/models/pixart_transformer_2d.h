// PixArtTransformer2DModel: a transformer over patches of latents as denoiser (Chen et al. 2023,
// Peebles & Xie 2022), with the parameter names and config.json keys of diffusers.
//
// forward() may run on several threads at once; nothing else may run beside it. A condition that
// the configuration asks for and the caller does not give is a broken contract.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "models/blocks.h"
#include "models/config.h"
#include "tensor/activation_checkpoint.h"

namespace yard::models {

// What the config.json keys of the same names say.
struct PixArtConfig {
  int64_t num_attention_heads = 16;
  int64_t attention_head_dim = 72;
  int64_t in_channels = 4;
  int64_t out_channels = 8;  // PixArt's own predict a variance beside the noise
  int64_t num_layers = 28;
  int64_t cross_attention_dim = 1152;
  bool attention_bias = true;
  int64_t sample_size = 128;  // latents' side that positions are counted for
  int64_t patch_size = 2;
  Activation activation = Activation::kGeluTanh;  // activation_fn
  bool norm_elementwise_affine = false;
  double norm_eps = 1e-6;
  double interpolation_scale = 2;         // by default sample_size / 64, rounded down, at least 1
  bool use_additional_conditions = true;  // by default where sample_size is 128
  int64_t caption_channels = 0;           // 0: the context is not projected before
  bool upcast_attention = false;

  // kInvalidArgument names the key.
  static Result<PixArtConfig> parse(const Json& config, const std::string& what);
  int64_t width() const { return num_attention_heads * attention_head_dim; }
  // Of encoder_hidden_states.
  int64_t context_width() const {
    return caption_channels > 0 ? caption_channels : cross_attention_dim;
  }
};

// Beside the context; the members are named as the reference's arguments.
struct PixArtConditions {
  // use_additional_conditions: [B, 2] height and width in pixels, [B, 1] their quotient.
  std::optional<at::Tensor> resolution, aspect_ratio;
  std::optional<at::Tensor> encoder_attention_mask;  // [B, L], 1 keeps and 0 hides; may be left out
};

class PixArtTransformer2DModel {
 public:
  PixArtTransformer2DModel(const PixArtConfig& config, WeightStart start);
  ~PixArtTransformer2DModel();

  // hidden_states [B, in_channels, H, W] with H and W multiples of patch_size,
  // encoder_hidden_states [B, L, context_width()], timestep [B] -> [B, out_channels, H, W].
  at::Tensor forward(const at::Tensor& hidden_states, const at::Tensor& encoder_hidden_states,
                     const at::Tensor& timestep, const PixArtConditions& conditions) const;

  const std::vector<NamedTensor>& parameters() const { return parameters_.all(); }
  const ParameterList& parameter_list() const { return parameters_; }
  const PixArtConfig& config() const { return config_; }
  // Whether the backward pass finds what each block computed, or computes it again.
  void set_activations(tensor::Activations activations) { activations_ = activations; }

 private:
  struct Layers;
  at::Tensor condition(const at::Tensor& timestep, at::ScalarType dtype,
                       const PixArtConditions& conditions) const;

  PixArtConfig config_;
  tensor::Activations activations_ = tensor::Activations::kKept;
  ParameterList parameters_;
  std::unique_ptr<Layers> layers_;
};

// Sines and cosines of the places of height x width patches, columns before rows in the last
// dimension, as diffusers' get_2d_sincos_pos_embed: place / (side / base_size) /
// interpolation_scale. width_of_model a multiple of 4. -> [1, height * width, width_of_model] f32.
at::Tensor sincos_positions(int64_t height, int64_t width, int64_t width_of_model,
                            int64_t base_size, double interpolation_scale);

}  // namespace yard::models
