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

namespace yard::models {

struct AutoencoderConfig {
  int64_t in_channels = 3;
  int64_t out_channels = 3;
  std::vector<int64_t> block_out_channels;  // each block but the last halves the resolution
  int64_t layers_per_block = 1;
  int64_t latent_channels = 4;
  NormOptions norm{.groups = 32, .eps = 1e-6};
  int64_t sample_size = 32;         // metadata only
  double scaling_factor = 0.18215;  // latents are multiplied by it before the denoiser sees them
  bool mid_block_add_attention = true;

  static Result<AutoencoderConfig> parse(const Json& config, const std::string& what);
  int64_t downscale() const { return int64_t{1} << (block_out_channels.size() - 1); }
};

struct LatentDistribution {
  at::Tensor mean;    // [B, latent_channels, H / downscale, W / downscale]
  at::Tensor logvar;  // same shape, clamped to [-30, 20]
};

class AutoencoderKL {
 public:
  // Without a seed the parameters' values are unset.
  AutoencoderKL(const AutoencoderConfig& config, std::optional<uint64_t> seed);
  ~AutoencoderKL();

  // pictures [B, in_channels, H, W] in [-1, 1]; H and W multiples of downscale().
  LatentDistribution encode(const at::Tensor& pictures) const;
  // latents as encode() gives them, not scaled -> [B, out_channels, H, W].
  at::Tensor decode(const at::Tensor& latents) const;

  const std::vector<NamedTensor>& parameters() const { return parameters_.all(); }
  const AutoencoderConfig& config() const { return config_; }

 private:
  struct Layers;
  AutoencoderConfig config_;
  ParameterList parameters_;
  std::unique_ptr<Layers> layers_;
};

}  // namespace yard::models
