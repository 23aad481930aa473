#include "models/autoencoder_kl.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/silu.h>

namespace yard::models {
namespace {

// Beyond any known model; against configs that would build for hours.
constexpr size_t kBlockCountMax = 8;
constexpr int64_t kDepthMax = 64;

void check_block_types(ConfigReader& reader, std::string_view key, std::string_view supported,
                       size_t count) {
  const std::vector<std::string> types =
      reader.texts(key, std::vector<std::string>(count, std::string(supported)));
  for (const std::string& type : types) {
    if (type != supported) {
      reader.fail("'" + std::string(key) + "': " + type + " is not supported, only " +
                  std::string(supported));
    }
  }
  if (types.size() != count) {
    reader.fail("'" + std::string(key) + "' must have as many entries as 'block_out_channels'");
  }
}

}  // namespace

Result<AutoencoderConfig> AutoencoderConfig::parse(const Json& config, const std::string& what) {
  ConfigReader reader(config, what);
  AutoencoderConfig c;
  size_t count = 1;
  if (reader.has("block_out_channels") && config["block_out_channels"].is_array()) {
    count = config["block_out_channels"].size();
  }
  if (count < 1 || count > kBlockCountMax) {
    reader.fail("'block_out_channels' must name 1 to " + std::to_string(kBlockCountMax) +
                " blocks");
  }
  c.block_out_channels = reader.sizes("block_out_channels", count, 64);
  check_block_types(reader, "down_block_types", "DownEncoderBlock2D", count);
  check_block_types(reader, "up_block_types", "UpDecoderBlock2D", count);
  c.in_channels = reader.size("in_channels", 3);
  c.out_channels = reader.size("out_channels", 3);
  c.layers_per_block = reader.size("layers_per_block", 1);
  c.latent_channels = reader.size("latent_channels", 4);
  c.norm.groups = reader.size("norm_num_groups", 32);
  c.sample_size = reader.size_or_null("sample_size", 32);
  c.scaling_factor = reader.number("scaling_factor", 0.18215);
  c.mid_block_add_attention = reader.boolean("mid_block_add_attention", true);
  reader.fixed("act_fn", "silu");
  reader.fixed("shift_factor", nullptr);
  reader.fixed("latents_mean", nullptr);
  reader.fixed("latents_std", nullptr);
  reader.fixed("use_quant_conv", true);
  reader.fixed("use_post_quant_conv", true);
  reader.ignored("force_upcast");
  for (const int64_t channels : c.block_out_channels) {
    if (channels % c.norm.groups != 0) {
      reader.fail("'block_out_channels': " + std::to_string(channels) +
                  " is not a multiple of 'norm_num_groups', " + std::to_string(c.norm.groups));
    }
  }
  if (c.layers_per_block > kDepthMax) {
    reader.fail("'layers_per_block' must be at most " + std::to_string(kDepthMax));
  }
  YARD_TRY(reader.finish());
  return c;
}

namespace {

// The single-head attention of the middle block: a GroupNorm over pixels, then Attention.
class PixelAttention {
 public:
  PixelAttention(const Scope& scope, int64_t channels, NormOptions norm)
      : norm_(scope / "group_norm", norm.groups, channels, norm.eps),
        attention_(scope, channels, channels, 1, true) {}

  at::Tensor operator()(const at::Tensor& x) const {
    const at::Tensor tokens = pixels_to_tokens(norm_(x));
    return x + tokens_to_pixels(attention_(tokens, tokens), x);
  }

 private:
  GroupNorm norm_;
  Attention attention_;
};

struct MidBlock {
  MidBlock(const Scope& scope, int64_t channels, NormOptions norm, bool with_attention)
      : resnet_1(scope / "resnets" / 0, channels, channels, 0, norm),
        attention(with_attention ? std::optional<PixelAttention>(
                                       std::in_place, scope / "attentions" / 0, channels, norm)
                                 : std::nullopt),
        resnet_2(scope / "resnets" / 1, channels, channels, 0, norm) {}
  at::Tensor operator()(const at::Tensor& x) const {
    const at::Tensor h = resnet_1(x, {});
    return resnet_2(attention ? (*attention)(h) : h, {});
  }

  ResnetBlock resnet_1;
  std::optional<PixelAttention> attention;
  ResnetBlock resnet_2;
};

struct Level {
  std::vector<ResnetBlock> resnets;
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
        levels[i].resnets.emplace_back(here / "resnets" / layer, channels, out, 0, c.norm);
        channels = out;
      }
      if (i + 1 < levels.size()) levels[i].downsample.emplace(here / "downsamplers" / 0, out, 0);
    }
    return levels;
  }

  at::Tensor operator()(const at::Tensor& x) const {
    at::Tensor h = conv_in(x);
    for (const Level& level : levels) {
      for (const ResnetBlock& resnet : level.resnets) h = resnet(h, {});
      if (level.downsample) h = (*level.downsample)(h);
    }
    return conv_out(at::silu(norm_out(mid(h))));
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
        levels[i].resnets.emplace_back(here / "resnets" / layer, channels, out, 0, c.norm);
        channels = out;
      }
      if (i + 1 < count) levels[i].upsample.emplace(here / "upsamplers" / 0, out);
    }
    return levels;
  }

  at::Tensor operator()(const at::Tensor& x) const {
    at::Tensor h = mid(conv_in(x));
    for (const Level& level : levels) {
      for (const ResnetBlock& resnet : level.resnets) h = resnet(h, {});
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
        quant(root / "quant_conv", 2 * c.latent_channels, 2 * c.latent_channels, 1),
        post_quant(root / "post_quant_conv", c.latent_channels, c.latent_channels, 1),
        decoder(root / "decoder", c) {}

  Encoder encoder;
  Conv2d quant;
  Conv2d post_quant;
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

AutoencoderKL::AutoencoderKL(const AutoencoderConfig& config, std::optional<uint64_t> seed)
    : config_(config),
      parameters_(seed),
      layers_(std::make_unique<Layers>(Scope(parameters_), config_)) {
  parameters_.restart(start_of);
}

AutoencoderKL::~AutoencoderKL() = default;

LatentDistribution AutoencoderKL::encode(const at::Tensor& pictures) const {
  const auto moments = layers_->quant(layers_->encoder(pictures)).chunk(2, 1);
  return {moments[0], at::clamp(moments[1], -30.0, 20.0)};
}

at::Tensor AutoencoderKL::decode(const at::Tensor& latents) const {
  return layers_->decoder(layers_->post_quant(latents));
}

}  // namespace yard::models
