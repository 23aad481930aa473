#include "models/unet_2d_condition.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/silu.h>

#include <algorithm>

#include "base/nearest_name.h"

namespace yard::models {
namespace {

// Beyond any known model; against configs that would build for hours.
constexpr size_t kBlockCountMax = 8;
constexpr int64_t kDepthMax = 64;

constexpr std::string_view kCross = "CrossAttn";

bool has_attention(const std::string& block_type) {
  return block_type.starts_with(kCross);
}

// The keys whose other values we do not have, at the value that diffusers writes by default.
void read_fixed_keys(ConfigReader& reader) {
  for (const char* key :
       {"class_embed_type", "addition_embed_type", "encoder_hid_dim", "encoder_hid_dim_type",
        "time_embedding_dim", "time_embedding_act_fn", "timestep_post_act", "time_cond_proj_dim",
        "num_class_embeds", "projection_class_embeddings_input_dim",
        "reverse_transformer_layers_per_block", "mid_block_only_cross_attention",
        "cross_attention_norm", "addition_time_embed_dim"}) {
    reader.fixed(key, nullptr);
  }
  for (const char* key : {"center_input_sample", "only_cross_attention", "dual_cross_attention",
                          "resnet_skip_time_act", "class_embeddings_concat", "upcast_attention"}) {
    reader.fixed(key, false);
  }
  reader.fixed("act_fn", "silu");
  reader.fixed("dropout", 0);
  reader.fixed("mid_block_scale_factor", 1);
  reader.fixed("mid_block_type", "UNetMidBlock2DCrossAttn");
  reader.fixed("resnet_time_scale_shift", "default");
  reader.fixed("resnet_out_scale_factor", 1);
  reader.fixed("time_embedding_type", "positional");
  reader.fixed("attention_type", "default");
  reader.fixed("conv_in_kernel", 3);
  reader.fixed("conv_out_kernel", 3);
  reader.ignored("addition_embed_type_num_heads");
}

void check_block_types(ConfigReader& reader, std::string_view key,
                       const std::vector<std::string>& types,
                       const std::vector<std::string_view>& known, size_t count) {
  const std::string name = "'" + std::string(key) + "'";
  if (types.size() != count) {
    reader.fail(name + " must have as many entries as 'block_out_channels'");
  }
  for (const std::string& type : types) {
    if (std::ranges::find(known, type) == known.end()) {
      reader.fail(name + ": '" + type + "' is not supported" + suggestion(type, known));
    }
  }
}

// What does not depend on one key alone.
void check_blocks(ConfigReader& reader, const UNetConfig& c) {
  const size_t count = c.block_out_channels.size();
  for (size_t i = 0; i < count; ++i) {
    const int64_t channels = c.block_out_channels[i];
    if (channels % c.norm.groups != 0) {
      reader.fail("'block_out_channels': " + std::to_string(channels) +
                  " is not a multiple of 'norm_num_groups', " + std::to_string(c.norm.groups));
    }
    const bool attends = has_attention(c.down_block_types[i]) ||
                         has_attention(c.up_block_types[count - 1 - i]) || i + 1 == count;
    if (attends && channels % c.head_counts[i] != 0) {
      reader.fail("'attention_head_dim': " + std::to_string(channels) +
                  " channels do not divide into " + std::to_string(c.head_counts[i]) + " heads");
    }
    if (c.layers_per_block[i] > kDepthMax || c.transformer_layers[i] > kDepthMax) {
      reader.fail("'layers_per_block' and 'transformer_layers_per_block' must be at most " +
                  std::to_string(kDepthMax));
    }
  }
  if (c.block_out_channels[0] % 2 != 0) {
    reader.fail(
        "'block_out_channels': the first must be even, for the timestep's sines and cosines");
  }
}

void read_blocks(ConfigReader& reader, size_t given_block_count, UNetConfig& c) {
  const std::string cross_down = "CrossAttnDownBlock2D", cross_up = "CrossAttnUpBlock2D";
  c.down_block_types =
      reader.texts("down_block_types", {cross_down, cross_down, cross_down, "DownBlock2D"});
  c.up_block_types = reader.texts("up_block_types", {"UpBlock2D", cross_up, cross_up, cross_up});
  c.block_out_channels = {320, 640, 1280, 1280};
  if (reader.has("block_out_channels")) {
    c.block_out_channels = reader.sizes("block_out_channels", given_block_count, 320);
  }
  const size_t count = c.block_out_channels.size();
  if (count < 1 || count > kBlockCountMax) {
    reader.fail("'block_out_channels' must name 1 to " + std::to_string(kBlockCountMax) +
                " blocks");
  }
  check_block_types(reader, "down_block_types", c.down_block_types,
                    {"DownBlock2D", "CrossAttnDownBlock2D"}, count);
  check_block_types(reader, "up_block_types", c.up_block_types, {"UpBlock2D", "CrossAttnUpBlock2D"},
                    count);
  c.layers_per_block = reader.sizes("layers_per_block", count, 2);
  // diffusers calls the number of heads "attention_head_dim" unless num_attention_heads is given.
  c.head_counts = reader.sizes("attention_head_dim", count, 8);
  if (reader.has("num_attention_heads")) {
    c.head_counts = reader.sizes("num_attention_heads", count, 8);
  }
  c.transformer_layers = reader.sizes("transformer_layers_per_block", count, 1);
}

}  // namespace

Result<UNetConfig> UNetConfig::parse(const Json& config, const std::string& what) {
  ConfigReader reader(config, what);
  UNetConfig c;
  c.sample_size = reader.size_or_null("sample_size", 64);
  c.in_channels = reader.size("in_channels", 4);
  c.out_channels = reader.size("out_channels", 4);
  c.flip_sin_to_cos = reader.boolean("flip_sin_to_cos", true);
  c.freq_shift = reader.number("freq_shift", 0);
  c.downsample_padding = reader.integer("downsample_padding", 1);
  c.norm = {reader.size("norm_num_groups", 32), reader.number("norm_eps", 1e-5)};
  c.cross_attention_dim = reader.size("cross_attention_dim", 1280);
  c.use_linear_projection = reader.boolean("use_linear_projection", false);
  read_fixed_keys(reader);
  const Json channels = config.is_object() ? config.value("block_out_channels", Json()) : Json();
  read_blocks(reader, channels.is_array() ? channels.size() : 1, c);
  reader.ignored("block_out_channels");
  reader.ignored("num_attention_heads");
  if (c.downsample_padding != 0 && c.downsample_padding != 1) {
    reader.fail("'downsample_padding' must be 0 or 1");
  }
  if (!reader.failed()) check_blocks(reader, c);
  YARD_TRY(reader.finish());
  return c;
}

namespace {

// One resolution: resnets, a transformer after each where the block attends, then a change of
// resolution except at the last.
struct Block {
  std::vector<ResnetBlock> resnets;
  std::vector<SpatialTransformer> attentions;  // empty or one per resnet
  std::optional<Downsample> downsample;
  std::optional<Upsample> upsample;
};

TransformerOptions transformer_of(const UNetConfig& c, size_t block) {
  return {.heads = c.head_counts[block],
          .depth = c.transformer_layers[block],
          .context_width = c.cross_attention_dim,
          .norm_groups = c.norm.groups,
          .linear_projection = c.use_linear_projection};
}

}  // namespace

struct UNet2DConditionModel::Layers {
  Layers(const Scope& root, const UNetConfig& c)
      : conv_in(root / "conv_in", c.in_channels, c.block_out_channels[0], 3, 1, 1),
        time_1(root / "time_embedding" / "linear_1", c.block_out_channels[0], time_width(c)),
        time_2(root / "time_embedding" / "linear_2", time_width(c), time_width(c)),
        down(make_down(root / "down_blocks", c)),
        mid_1(root / "mid_block" / "resnets" / 0, c.block_out_channels.back(),
              c.block_out_channels.back(), time_width(c), c.norm),
        mid_attention(root / "mid_block" / "attentions" / 0, c.block_out_channels.back(),
                      transformer_of(c, c.block_out_channels.size() - 1)),
        mid_2(root / "mid_block" / "resnets" / 1, c.block_out_channels.back(),
              c.block_out_channels.back(), time_width(c), c.norm),
        up(make_up(root / "up_blocks", c)),
        norm_out(root / "conv_norm_out", c.norm.groups, c.block_out_channels[0], c.norm.eps),
        conv_out(root / "conv_out", c.block_out_channels[0], c.out_channels, 3, 1, 1) {}

  static int64_t time_width(const UNetConfig& c) { return 4 * c.block_out_channels[0]; }

  static std::vector<Block> make_down(const Scope& scope, const UNetConfig& c) {
    std::vector<Block> blocks(c.block_out_channels.size());
    int64_t channels = c.block_out_channels[0];
    for (size_t i = 0; i < blocks.size(); ++i) {
      const Scope here = scope / static_cast<int64_t>(i);
      const int64_t out = c.block_out_channels[i];
      for (int64_t layer = 0; layer < c.layers_per_block[i]; ++layer) {
        blocks[i].resnets.emplace_back(here / "resnets" / layer, channels, out, time_width(c),
                                       c.norm);
        if (has_attention(c.down_block_types[i])) {
          blocks[i].attentions.emplace_back(here / "attentions" / layer, out, transformer_of(c, i));
        }
        channels = out;
      }
      if (i + 1 < blocks.size()) {
        blocks[i].downsample.emplace(here / "downsamplers" / 0, out, c.downsample_padding);
      }
    }
    return blocks;
  }

  // The channels that the way down leaves behind, in order; the way up takes them from the end.
  static std::vector<int64_t> skip_channels(const UNetConfig& c) {
    std::vector<int64_t> skips = {c.block_out_channels[0]};
    for (size_t i = 0; i < c.block_out_channels.size(); ++i) {
      const bool downsamples = i + 1 < c.block_out_channels.size();
      skips.insert(skips.end(), c.layers_per_block[i] + (downsamples ? 1 : 0),
                   c.block_out_channels[i]);
    }
    return skips;
  }

  static std::vector<Block> make_up(const Scope& scope, const UNetConfig& c) {
    const size_t count = c.block_out_channels.size();
    std::vector<Block> blocks(count);
    std::vector<int64_t> skips = skip_channels(c);
    int64_t channels = c.block_out_channels.back();
    for (size_t i = 0; i < count; ++i) {
      const Scope here = scope / static_cast<int64_t>(i);
      const size_t mirrored = count - 1 - i;
      const int64_t out = c.block_out_channels[mirrored];
      for (int64_t layer = 0; layer < c.layers_per_block[mirrored] + 1; ++layer) {
        blocks[i].resnets.emplace_back(here / "resnets" / layer, channels + skips.back(), out,
                                       time_width(c), c.norm);
        if (has_attention(c.up_block_types[i])) {
          blocks[i].attentions.emplace_back(here / "attentions" / layer, out,
                                            transformer_of(c, mirrored));
        }
        skips.pop_back();
        channels = out;
      }
      if (i + 1 < count) blocks[i].upsample.emplace(here / "upsamplers" / 0, out);
    }
    return blocks;
  }

  Conv2d conv_in;
  Linear time_1, time_2;
  std::vector<Block> down;
  ResnetBlock mid_1;
  SpatialTransformer mid_attention;
  ResnetBlock mid_2;
  std::vector<Block> up;
  GroupNorm norm_out;
  Conv2d conv_out;
};

namespace {

// The last layer of each residual branch, and of the model, gives nothing at the start: the first
// gradients then reach every layer undisturbed.
std::optional<Init> start_of(const NamedTensor& parameter) {
  const std::string layer = parameter.name.substr(0, parameter.name.rfind('.'));
  if (layer.ends_with("conv2") || layer.ends_with("proj_out") || layer == "conv_out")
    return Init::kZeros;
  return {};
}

}  // namespace

UNet2DConditionModel::UNet2DConditionModel(const UNetConfig& config, WeightStart start)
    : config_(config),
      parameters_(start),
      layers_(std::make_unique<Layers>(Scope(parameters_), config_)) {
  parameters_.restart(start_of);
}

UNet2DConditionModel::~UNet2DConditionModel() = default;

at::Tensor UNet2DConditionModel::run_block(const std::string& name,
                                           const tensor::SegmentForward& block,
                                           std::vector<at::Tensor> inputs) const {
  if (activations_ == tensor::Activations::kKept) return block(inputs);
  return tensor::checkpointed(block, std::move(inputs), parameters_.under(name + "."));
}

at::Tensor UNet2DConditionModel::forward(const at::Tensor& sample, const at::Tensor& timestep,
                                         const at::Tensor& context) const {
  const Layers& l = *layers_;
  at::Tensor time = timestep_embedding(timestep, config_.block_out_channels[0],
                                       config_.flip_sin_to_cos, config_.freq_shift)
                        .to(sample.scalar_type());
  // Every block starts from SiLU of the embedding: do it once.
  time = at::silu(l.time_2(at::silu(l.time_1(time))));

  const auto resnet = [&](const std::string& name, const ResnetBlock& block, const at::Tensor& x) {
    return run_block(name,
                     [&block](const std::vector<at::Tensor>& in) { return block(in[0], in[1]); },
                     {x, time});
  };
  const auto attend = [&](const std::string& name, const SpatialTransformer& block,
                          const at::Tensor& x) {
    return run_block(name,
                     [&block](const std::vector<at::Tensor>& in) { return block(in[0], in[1]); },
                     {x, context});
  };
  at::Tensor h = l.conv_in(sample);
  std::vector<at::Tensor> skips = {h};
  for (size_t b = 0; b < l.down.size(); ++b) {
    const Block& block = l.down[b];
    const std::string name = "down_blocks." + std::to_string(b);
    for (size_t i = 0; i < block.resnets.size(); ++i) {
      h = resnet(name + ".resnets." + std::to_string(i), block.resnets[i], h);
      if (!block.attentions.empty())
        h = attend(name + ".attentions." + std::to_string(i), block.attentions[i], h);
      skips.push_back(h);
    }
    if (block.downsample) {
      h = (*block.downsample)(h);
      skips.push_back(h);
    }
  }
  h = resnet("mid_block.resnets.0", l.mid_1, h);
  h = attend("mid_block.attentions.0", l.mid_attention, h);
  h = resnet("mid_block.resnets.1", l.mid_2, h);
  for (size_t b = 0; b < l.up.size(); ++b) {
    const Block& block = l.up[b];
    const std::string name = "up_blocks." + std::to_string(b);
    for (size_t i = 0; i < block.resnets.size(); ++i) {
      h = resnet(name + ".resnets." + std::to_string(i), block.resnets[i],
                 at::cat({h, skips.back()}, 1));
      skips.pop_back();
      if (!block.attentions.empty())
        h = attend(name + ".attentions." + std::to_string(i), block.attentions[i], h);
    }
    if (block.upsample) h = (*block.upsample)(h);
  }
  return l.conv_out(at::silu(l.norm_out(h)));
}

}  // namespace yard::models
