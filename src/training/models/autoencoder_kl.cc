#include "models/autoencoder_kl.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/silu.h>

#include "models/block_runner.h"
#include "models/tiles_internal.h"

namespace yard::models {
namespace {

// The single-head attention of the middle block: a GroupNorm over pixels, then Attention.
class PixelAttention {
 public:
  PixelAttention(const Scope& scope, int64_t channels, NormOptions norm)
      : norm_(scope / "group_norm", norm.groups, channels, norm.eps),
        attention_(scope, {.width = channels, .context_width = channels, .qkv_bias = true}) {}

  at::Tensor operator()(const at::Tensor& x) const {
    const at::Tensor tokens = pixels_to_tokens(norm_(x));
    return x + tokens_to_pixels(attention_(tokens, tokens), x);
  }

 private:
  GroupNorm norm_;
  Attention attention_;
};

using Resnet = Placed<ResnetBlock>;

at::Tensor apply(const BlockRunner& run, const Resnet& resnet, const at::Tensor& h) {
  return run(
      resnet.prefix,
      [&layer = resnet.layer](const std::vector<at::Tensor>& in) { return layer(in[0], {}); }, {h});
}

struct MidBlock {
  MidBlock(const Scope& scope, int64_t channels, NormOptions norm, bool with_attention)
      : resnet_1(scope / "resnets" / 0, channels, channels, 0, ResnetOptions{.norm = norm}),
        attention(with_attention ? std::optional<Placed<PixelAttention>>(
                                       std::in_place, scope / "attentions" / 0, channels, norm)
                                 : std::nullopt),
        resnet_2(scope / "resnets" / 1, channels, channels, 0, ResnetOptions{.norm = norm}) {}
  at::Tensor operator()(const BlockRunner& run, const at::Tensor& x) const {
    const at::Tensor h = apply(run, resnet_1, x);
    return apply(run, resnet_2, attention ? attend(run, h) : h);
  }
  at::Tensor attend(const BlockRunner& run, const at::Tensor& h) const {
    return run(
        attention->prefix,
        [&layer = attention->layer](const std::vector<at::Tensor>& in) { return layer(in[0]); },
        {h});
  }

  Resnet resnet_1;
  std::optional<Placed<PixelAttention>> attention;
  Resnet resnet_2;
};

struct Level {
  std::vector<Resnet> resnets;
  std::optional<Downsample> downsample;
  std::optional<Upsample> upsample;
};

struct Encoder {
  Encoder(const Scope& scope, const AutoencoderConfig& c)
      : conv_in(scope / "conv_in", c.in_channels, c.block_out_channels[0], 3, 1, 1),
        levels(make_levels(scope / "down_blocks", c)),
        mid(scope / "mid_block", c.block_out_channels.back(), c.norm, c.mid_block_add_attention),
        norm_out(scope / "conv_norm_out", c.norm.groups, c.block_out_channels.back(), c.norm.eps),
        conv_out(scope / "conv_out", c.block_out_channels.back(), 2 * c.latent_channels, 3, 1, 1) {}

  static std::vector<Level> make_levels(const Scope& scope, const AutoencoderConfig& c) {
    std::vector<Level> levels(c.block_out_channels.size());
    int64_t channels = c.block_out_channels[0];
    for (size_t i = 0; i < levels.size(); ++i) {
      const Scope here = scope / static_cast<int64_t>(i);
      const int64_t out = c.block_out_channels[i];
      for (int64_t layer = 0; layer < c.layers_per_block; ++layer) {
        levels[i].resnets.emplace_back(here / "resnets" / layer, channels, out, 0,
                                       ResnetOptions{.norm = c.norm});
        channels = out;
      }
      if (i + 1 < levels.size()) levels[i].downsample.emplace(here / "downsamplers" / 0, out, 0);
    }
    return levels;
  }

  at::Tensor operator()(const BlockRunner& run, const at::Tensor& x) const {
    at::Tensor h = conv_in(x);
    for (const Level& level : levels) {
      for (const Resnet& resnet : level.resnets) h = apply(run, resnet, h);
      if (level.downsample) h = (*level.downsample)(h);
    }
    return conv_out(at::silu(norm_out(mid(run, h))));
  }

  Conv2d conv_in;
  std::vector<Level> levels;
  MidBlock mid;
  GroupNorm norm_out;
  Conv2d conv_out;
};

struct Decoder {
  Decoder(const Scope& scope, const AutoencoderConfig& c)
      : conv_in(scope / "conv_in", c.latent_channels, c.block_out_channels.back(), 3, 1, 1),
        mid(scope / "mid_block", c.block_out_channels.back(), c.norm, c.mid_block_add_attention),
        levels(make_levels(scope / "up_blocks", c)),
        norm_out(scope / "conv_norm_out", c.norm.groups, c.block_out_channels[0], c.norm.eps),
        conv_out(scope / "conv_out", c.block_out_channels[0], c.out_channels, 3, 1, 1) {}

  static std::vector<Level> make_levels(const Scope& scope, const AutoencoderConfig& c) {
    const size_t count = c.block_out_channels.size();
    std::vector<Level> levels(count);
    int64_t channels = c.block_out_channels.back();
    for (size_t i = 0; i < count; ++i) {
      const Scope here = scope / static_cast<int64_t>(i);
      const int64_t out = c.block_out_channels[count - 1 - i];
      for (int64_t layer = 0; layer < c.layers_per_block + 1; ++layer) {
        levels[i].resnets.emplace_back(here / "resnets" / layer, channels, out, 0,
                                       ResnetOptions{.norm = c.norm});
        channels = out;
      }
      if (i + 1 < count) levels[i].upsample.emplace(here / "upsamplers" / 0, out);
    }
    return levels;
  }

  at::Tensor operator()(const BlockRunner& run, const at::Tensor& x) const {
    at::Tensor h = mid(run, conv_in(x));
    for (const Level& level : levels) {
      for (const Resnet& resnet : level.resnets) h = apply(run, resnet, h);
      if (level.upsample) h = (*level.upsample)(h);
    }
    return conv_out(at::silu(norm_out(h)));
  }

  Conv2d conv_in;
  MidBlock mid;
  std::vector<Level> levels;
  GroupNorm norm_out;
  Conv2d conv_out;
};

}  // namespace

struct AutoencoderKL::Layers {
  Layers(const Scope& root, const AutoencoderConfig& c)
      : encoder(root / "encoder", c),
        quant(make_quant(root / "quant_conv", c.use_quant_conv, 2 * c.latent_channels)),
        post_quant(make_quant(root / "post_quant_conv", c.use_post_quant_conv, c.latent_channels)),
        decoder(root / "decoder", c) {}

  static std::optional<Conv2d> make_quant(const Scope& scope, bool used, int64_t channels) {
    if (!used) return {};
    return Conv2d(scope, channels, channels, 1);
  }

  Encoder encoder;
  std::optional<Conv2d> quant;
  std::optional<Conv2d> post_quant;
  Decoder decoder;
};

namespace {

// Starts as a linear map that loses no direction: residual branches give nothing yet, and the
// convolutions on the way are orthogonal. PyTorch's start shrinks what differs little between
// pictures, such as green against magenta, and those colours were learnt last: after 300 steps on
// emoji their error was four times as large.
std::optional<Init> start_of(const NamedTensor& parameter) {
  const std::string& name = parameter.name;
  if (name.ends_with("conv2.weight") || name.ends_with("to_out.0.weight")) return Init::kZeros;
  if (name.ends_with(".bias")) return Init::kZeros;
  if (parameter.tensor.dim() == 4) return Init::kOrthogonal;
  return {};
}

}  // namespace

AutoencoderKL::AutoencoderKL(const AutoencoderConfig& config, WeightStart start)
    : config_(config),
      parameters_(start),
      layers_(std::make_unique<Layers>(Scope(parameters_), config_)) {
  parameters_.restart(start_of);
}

AutoencoderKL::~AutoencoderKL() = default;

at::Tensor AutoencoderKL::moments(const at::Tensor& pictures) const {
  const at::Tensor h = layers_->encoder({activations_, &parameters_}, pictures);
  return layers_->quant ? (*layers_->quant)(h) : h;
}

namespace {

LatentDistribution distribution_of(const at::Tensor& moments) {
  const auto halves = moments.chunk(2, 1);
  return {halves[0], at::clamp(halves[1], -30.0, 20.0)};
}

}  // namespace

LatentDistribution AutoencoderKL::encode(const at::Tensor& pictures) const {
  return distribution_of(moments(pictures));
}

at::Tensor AutoencoderKL::decode(const at::Tensor& latents) const {
  return layers_->decoder({activations_, &parameters_},
                          layers_->post_quant ? (*layers_->post_quant)(latents) : latents);
}

LatentDistribution AutoencoderKL::encode(const at::Tensor& pictures,
                                         const AutoencoderTiling& tiling) const {
  if (pictures.size(2) <= tiling.sample_side_min && pictures.size(3) <= tiling.sample_side_min)
    return encode(pictures);
  return distribution_of(by_tiles(pictures,
                                  {.side_in = tiling.sample_side_min,
                                   .side_out = tiling.latent_side_min,
                                   .overlap_factor = tiling.overlap_factor},
                                  [this](const at::Tensor& tile) { return moments(tile); }));
}

at::Tensor AutoencoderKL::decode(const at::Tensor& latents, const AutoencoderTiling& tiling) const {
  if (latents.size(2) <= tiling.latent_side_min && latents.size(3) <= tiling.latent_side_min)
    return decode(latents);
  return by_tiles(latents,
                  {.side_in = tiling.latent_side_min,
                   .side_out = tiling.sample_side_min,
                   .overlap_factor = tiling.overlap_factor},
                  [this](const at::Tensor& tile) { return decode(tile); });
}

}  // namespace yard::models
