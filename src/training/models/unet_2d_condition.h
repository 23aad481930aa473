// UNet2DConditionModel: the denoiser of Stable Diffusion 1.x/2.x (Rombach et al. 2022, Ronneberger
// et al. 2015), with the parameter names and config.json keys of diffusers.
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
struct UNetConfig {
  int64_t sample_size = 64;  // latents' side; metadata only
  int64_t in_channels = 4;
  int64_t out_channels = 4;
  bool flip_sin_to_cos = true;
  double freq_shift = 0;
  std::vector<std::string> down_block_types;  // "DownBlock2D" | "CrossAttnDownBlock2D"
  std::vector<std::string> up_block_types;    // "UpBlock2D" | "CrossAttnUpBlock2D"
  std::vector<int64_t> block_out_channels;
  std::vector<int64_t> layers_per_block;    // one entry per block
  std::vector<int64_t> head_counts;         // num_attention_heads, else attention_head_dim
  std::vector<int64_t> transformer_layers;  // transformer_layers_per_block
  int64_t downsample_padding = 1;
  NormOptions norm;
  int64_t cross_attention_dim = 1280;
  bool use_linear_projection = false;

  // kInvalidArgument names the key.
  static Result<UNetConfig> parse(const Json& config, const std::string& what);
  int64_t downscale() const { return int64_t{1} << (block_out_channels.size() - 1); }
};

class UNet2DConditionModel {
 public:
  UNet2DConditionModel(const UNetConfig& config, WeightStart start);
  ~UNet2DConditionModel();

  // sample [B, in_channels, H, W] with H and W multiples of downscale(), timestep [B] (f32 or
  // i64), encoder_hidden_states [B, L, cross_attention_dim] -> [B, out_channels, H, W].
  at::Tensor forward(const at::Tensor& sample, const at::Tensor& timestep,
                     const at::Tensor& encoder_hidden_states) const;

  const std::vector<NamedTensor>& parameters() const { return parameters_.all(); }
  const ParameterList& parameter_list() const { return parameters_; }
  const UNetConfig& config() const { return config_; }
  // Whether the backward pass finds what each block computed, or computes it again.
  void set_activations(tensor::Activations activations) { activations_ = activations; }

 private:
  struct Layers;
  at::Tensor run_block(const std::string& name, const tensor::SegmentForward& block,
                       std::vector<at::Tensor> inputs) const;

  UNetConfig config_;
  tensor::Activations activations_ = tensor::Activations::kKept;
  ParameterList parameters_;
  std::unique_ptr<Layers> layers_;
};

}  // namespace yard::models
