// AutoencoderKL: pictures to latents and back (Kingma & Welling 2014; Rombach et al. 2022), with
// the parameter names and config.json keys of diffusers.
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

struct AutoencoderConfig {
  int64_t in_channels = 3;
  int64_t out_channels = 3;
  std::vector<int64_t> block_out_channels;  // each block but the last halves the resolution
  int64_t layers_per_block = 1;
  int64_t latent_channels = 4;
  NormOptions norm{.groups = 32, .eps = 1e-6};
  int64_t sample_size = 32;  // of pictures; what AutoencoderTiling starts from
  // Latents are brought to about unit variance before the denoiser sees them; see to_denoiser().
  double scaling_factor = 0.18215;
  std::optional<double> shift_factor;
  std::vector<double> latents_mean, latents_std;  // empty, or one value per latent channel
  bool use_quant_conv = true;
  bool use_post_quant_conv = true;
  bool mid_block_add_attention = true;

  static Result<AutoencoderConfig> parse(const Json& config, const std::string& what);
  int64_t downscale() const { return int64_t{1} << (block_out_channels.size() - 1); }
};

// What a denoiser is trained on, of latents as encode() gives them: (z - shift) * scale, channel by
// channel where the configuration has means and deviations; and the way back, for decode().
at::Tensor to_denoiser(const AutoencoderConfig& config, const at::Tensor& latents);
at::Tensor from_denoiser(const AutoencoderConfig& config, const at::Tensor& latents);

// Tiles of a picture too large for memory, overlapping and blended into each other as diffusers'
// enable_tiling() does. The result differs from that of the whole picture, most of all for
// attention and norms, which see one tile.
struct AutoencoderTiling {
  explicit AutoencoderTiling(const AutoencoderConfig& config)
      : sample_side_min(config.sample_size),
        latent_side_min(config.sample_size / config.downscale()) {}
  int64_t sample_side_min;  // pixels; only a larger picture is cut
  int64_t latent_side_min;
  double overlap_factor = 0.25;  // in [0, 1): of a tile's side
};

struct LatentDistribution {
  at::Tensor mean;    // [B, latent_channels, H / downscale, W / downscale]
  at::Tensor logvar;  // same shape, clamped to [-30, 20]
};

class AutoencoderKL {
 public:
  AutoencoderKL(const AutoencoderConfig& config, WeightStart start);
  ~AutoencoderKL();

  // pictures [B, in_channels, H, W] in [-1, 1]; H and W multiples of downscale().
  LatentDistribution encode(const at::Tensor& pictures) const;
  // latents as encode() gives them, not scaled -> [B, out_channels, H, W].
  at::Tensor decode(const at::Tensor& latents) const;
  // The same by tiles: the memory needed is that of one tile and of the results. A picture no
  // larger than a tile is not cut.
  LatentDistribution encode(const at::Tensor& pictures, const AutoencoderTiling& tiling) const;
  at::Tensor decode(const at::Tensor& latents, const AutoencoderTiling& tiling) const;

  const std::vector<NamedTensor>& parameters() const { return parameters_.all(); }
  const ParameterList& parameter_list() const { return parameters_; }
  const AutoencoderConfig& config() const { return config_; }
  // Whether the backward pass finds what each block computed, or computes it again.
  void set_activations(tensor::Activations activations) { activations_ = activations; }

 private:
  struct Layers;
  at::Tensor moments(const at::Tensor& pictures) const;

  AutoencoderConfig config_;
  tensor::Activations activations_ = tensor::Activations::kKept;
  ParameterList parameters_;
  std::unique_ptr<Layers> layers_;
};

}  // namespace yard::models
