#include "models/unet_2d_condition.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/silu.h>

#include "models/unet_blocks.h"

namespace yard::models {
namespace {

// The channels that the way down leaves behind, in order; the way up takes them from the end.
std::vector<int64_t> skip_channels(const UNetConfig& c) {
  std::vector<int64_t> skips = {c.block_out_channels[0]};
  for (size_t i = 0; i < c.block_out_channels.size(); ++i) {
    const bool downsamples = i + 1 < c.block_out_channels.size();
    skips.insert(skips.end(), static_cast<size_t>(c.layers_per_block[i] + (downsamples ? 1 : 0)),
                 c.block_out_channels[i]);
  }
  return skips;
}

int64_t blocks_time_width(const UNetConfig& c) {
  return c.class_embeddings_concat ? 2 * c.time_embedding_dim : c.time_embedding_dim;
}

// What the blocks of one resolution, numbered from the top, have in common.
UNetBlockPlan plan_of(const UNetConfig& c, size_t level) {
  return {.channels_out = c.block_out_channels[level],
          .skip_channels = {},
          .depths = {},
          .time_width = blocks_time_width(c),
          .resnet = {.norm = c.norm, .scale_shift = c.time_scale_shift},
          .transformer = {.heads = c.head_counts[level],
                          .context_width = c.cross_attention_dim,
                          .norm_groups = c.norm.groups,
                          .linear_projection = c.use_linear_projection,
                          .only_cross_attention = c.only_cross_attention[level],
                          .upcast_attention = c.upcast_attention},
          .downsample_padding = c.downsample_padding};
}

using Blocks = std::vector<std::unique_ptr<UNetBlock>>;

std::unique_ptr<UNetBlock> make_block(const UNetBlockType* type, const Scope& scope,
                                      const UNetBlockPlan& plan) {
  return type->make(scope, plan, type->attends);
}

Blocks make_down(const Scope& scope, const UNetConfig& c) {
  Blocks blocks;
  int64_t channels = c.block_out_channels[0];
  for (size_t i = 0; i < c.block_out_channels.size(); ++i) {
    UNetBlockPlan plan = plan_of(c, i);
    plan.channels_in = std::exchange(channels, plan.channels_out);
    plan.depths = c.down_depths[i];
    plan.resamples = i + 1 < c.block_out_channels.size();
    blocks.push_back(make_block(find_block_type(down_block_types(), c.down_block_types[i]),
                                scope / static_cast<int64_t>(i), plan));
  }
  return blocks;
}

// Null where the configuration has none.
std::unique_ptr<UNetBlock> make_mid(const Scope& scope, const UNetConfig& c) {
  if (c.mid_block_type.empty()) return nullptr;
  UNetBlockPlan plan = plan_of(c, c.block_out_channels.size() - 1);
  plan.channels_in = plan.channels_out;
  plan.depths = {c.mid_depth};
  plan.resnet.output_scale_factor = c.mid_block_scale_factor;
  plan.transformer.only_cross_attention = false;
  return make_block(find_block_type(mid_block_types(), c.mid_block_type), scope, plan);
}

Blocks make_up(const Scope& scope, const UNetConfig& c) {
  const size_t count = c.block_out_channels.size();
  Blocks blocks;
  std::vector<int64_t> skips = skip_channels(c);
  int64_t channels = c.block_out_channels.back();
  for (size_t i = 0; i < count; ++i) {
    UNetBlockPlan plan = plan_of(c, count - 1 - i);
    plan.channels_in = std::exchange(channels, plan.channels_out);
    plan.depths = c.up_depths[i];
    plan.resamples = i + 1 < count;
    for (size_t layer = 0; layer < plan.depths.size(); ++layer) {
      plan.skip_channels.push_back(skips.back());
      skips.pop_back();
    }
    blocks.push_back(make_block(find_block_type(up_block_types(), c.up_block_types[i]),
                                scope / static_cast<int64_t>(i), plan));
  }
  return blocks;
}

// The layers of class_embed_type and num_class_embeds; at most one is there.
struct ClassLayers {
  ClassLayers(const Scope& scope, const UNetConfig& c) {
    const int64_t out = c.time_embedding_dim;
    switch (c.class_embedding) {
      case ClassEmbedding::kNone:
      case ClassEmbedding::kIdentity:
        return;
      case ClassEmbedding::kLookup:
        table = scope.add("weight", {c.num_class_embeds, out}, Init::kNormal);
        return;
      case ClassEmbedding::kTimestep:
        mlp.emplace(scope, c.block_out_channels[0], out);
        return;
      case ClassEmbedding::kProjection:
        mlp.emplace(scope, c.projection_class_embeddings_input_dim, out);
        return;
      case ClassEmbedding::kSimpleProjection:
        linear.emplace(scope, c.projection_class_embeddings_input_dim, out);
        return;
    }
  }

  std::optional<at::Tensor> table;
  std::optional<EmbeddingMlp> mlp;
  std::optional<Linear> linear;
};

std::optional<Linear> make_context_projection(const Scope& scope, const UNetConfig& c) {
  if (c.encoder_hid_dim == 0) return {};
  return Linear(scope, c.encoder_hid_dim, c.cross_attention_dim);
}

std::optional<EmbeddingMlp> make_addition(const Scope& scope, const UNetConfig& c) {
  if (c.addition_time_embed_dim == 0) return {};
  return EmbeddingMlp(scope, c.projection_class_embeddings_input_dim, c.time_embedding_dim);
}

}  // namespace

struct UNet2DConditionModel::Layers {
  Layers(const Scope& root, const UNetConfig& c)
      : conv_in(root / "conv_in", c.in_channels, c.block_out_channels[0], c.conv_in_kernel, 1,
                c.conv_in_kernel / 2),
        time(root / "time_embedding", c.block_out_channels[0], c.time_embedding_dim,
             c.time_cond_proj_dim),
        context_projection(make_context_projection(root / "encoder_hid_proj", c)),
        classes(root / "class_embedding", c),
        addition(make_addition(root / "add_embedding", c)),
        down(make_down(root / "down_blocks", c)),
        mid(make_mid(root / "mid_block", c)),
        up(make_up(root / "up_blocks", c)),
        norm_out(root / "conv_norm_out", c.norm.groups, c.block_out_channels[0], c.norm.eps),
        conv_out(root / "conv_out", c.block_out_channels[0], c.out_channels, c.conv_out_kernel, 1,
                 c.conv_out_kernel / 2) {}

  Conv2d conv_in;
  EmbeddingMlp time;
  std::optional<Linear> context_projection;
  ClassLayers classes;
  std::optional<EmbeddingMlp> addition;
  Blocks down;
  std::unique_ptr<UNetBlock> mid;
  Blocks up;
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

at::Tensor UNet2DConditionModel::class_embedding(const at::Tensor& labels,
                                                 at::ScalarType dtype) const {
  const ClassLayers& l = layers_->classes;
  switch (config_.class_embedding) {
    case ClassEmbedding::kLookup:
      return at::embedding(*l.table, labels).to(dtype);
    case ClassEmbedding::kTimestep:
      return (*l.mlp)(timestep_embedding(labels, config_.block_out_channels[0],
                                         config_.flip_sin_to_cos, config_.freq_shift)
                          .to(dtype));
    case ClassEmbedding::kProjection:
      return (*l.mlp)(labels.to(dtype));
    case ClassEmbedding::kSimpleProjection:
      return (*l.linear)(labels.to(dtype));
    case ClassEmbedding::kNone:
    case ClassEmbedding::kIdentity:
      return labels.to(dtype);
  }
  YARD_UNREACHABLE();
}

at::Tensor UNet2DConditionModel::time_embedding(const at::Tensor& timestep, at::ScalarType dtype,
                                                const UNetConditions& conditions) const {
  const UNetConfig& c = config_;
  const auto sines = [&](const at::Tensor& times, int64_t width) {
    return timestep_embedding(times, width, c.flip_sin_to_cos, c.freq_shift).to(dtype);
  };
  YARD_CHECK(!conditions.timestep_cond || c.time_cond_proj_dim > 0);
  at::Tensor out =
      layers_->time(sines(timestep, c.block_out_channels[0]), conditions.timestep_cond);
  if (c.class_embedding != ClassEmbedding::kNone) {
    YARD_CHECK(conditions.class_labels.has_value());
    const at::Tensor classes = class_embedding(*conditions.class_labels, dtype);
    out = c.class_embeddings_concat ? at::cat({out, classes}, -1) : out + classes;
  }
  if (c.addition_time_embed_dim == 0) return out;
  YARD_CHECK(conditions.text_embeds && conditions.time_ids);
  const at::Tensor times = sines(conditions.time_ids->flatten(), c.addition_time_embed_dim);
  const at::Tensor texts = conditions.text_embeds->to(dtype);
  return out + (*layers_->addition)(at::cat({texts, times.reshape({texts.size(0), -1})}, -1));
}

at::Tensor UNet2DConditionModel::forward(const at::Tensor& sample, const at::Tensor& timestep,
                                         const at::Tensor& context,
                                         const UNetConditions& conditions) const {
  const Layers& l = *layers_;
  // Every block starts from SiLU of the embedding: do it once.
  UNetPass pass{.time = at::silu(time_embedding(timestep, sample.scalar_type(), conditions)),
                .context = l.context_projection ? (*l.context_projection)(context) : context,
                .context_bias = {},
                .run = {activations_, &parameters_},
                .skips = {}};
  if (conditions.encoder_attention_mask)
    pass.context_bias = bias_of_mask(*conditions.encoder_attention_mask);
  at::Tensor h = l.conv_in(config_.center_input_sample ? 2 * sample - 1 : sample);
  pass.skips.push_back(h);
  for (const auto& block : l.down) h = block->forward(pass, h);
  if (l.mid) h = l.mid->forward(pass, h);
  for (const auto& block : l.up) h = block->forward(pass, h);
  return l.conv_out(at::silu(l.norm_out(h)));
}

}  // namespace yard::models
