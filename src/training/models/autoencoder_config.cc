#include <ATen/TensorOperators.h>
#include <ATen/ops/tensor.h>

#include "models/autoencoder_kl.h"

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

void check_latents(ConfigReader& reader, const AutoencoderConfig& c) {
  const auto channels = static_cast<size_t>(c.latent_channels);
  if (c.latents_mean.size() != c.latents_std.size() ||
      (!c.latents_mean.empty() && c.latents_mean.size() != channels))
    reader.fail("'latents_mean' and 'latents_std' must both have 'latent_channels' entries");
  if (c.scaling_factor == 0) reader.fail("'scaling_factor' must not be 0");
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
  c.sample_size = reader.side_or_null("sample_size", 32);
  c.scaling_factor = reader.number("scaling_factor", 0.18215);
  c.shift_factor = reader.number_or_null("shift_factor");
  c.latents_mean = reader.numbers_or_null("latents_mean");
  c.latents_std = reader.numbers_or_null("latents_std");
  c.use_quant_conv = reader.boolean("use_quant_conv", true);
  c.use_post_quant_conv = reader.boolean("use_post_quant_conv", true);
  c.mid_block_add_attention = reader.boolean("mid_block_add_attention", true);
  reader.choice("act_fn", "silu", {"silu", "swish"});
  reader.ignored("force_upcast");
  check_latents(reader, c);
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

// [values...] as [1, C, 1, 1].
at::Tensor per_channel(const std::vector<double>& values, const at::Tensor& like) {
  return at::tensor(values, like.options()).view({1, static_cast<int64_t>(values.size()), 1, 1});
}

}  // namespace

at::Tensor to_denoiser(const AutoencoderConfig& config, const at::Tensor& latents) {
  at::Tensor z = latents;
  if (!config.latents_mean.empty())
    z = (z - per_channel(config.latents_mean, z)) / per_channel(config.latents_std, z);
  if (config.shift_factor) z = z - *config.shift_factor;
  return z * config.scaling_factor;
}

at::Tensor from_denoiser(const AutoencoderConfig& config, const at::Tensor& latents) {
  at::Tensor z = latents / config.scaling_factor;
  if (config.shift_factor) z = z + *config.shift_factor;
  if (!config.latents_mean.empty())
    z = z * per_channel(config.latents_std, z) + per_channel(config.latents_mean, z);
  return z;
}

}  // namespace yard::models
