#include "models/pixart_transformer_2d.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/sin.h>

#include <cmath>

#include "models/block_runner.h"

namespace yard::models {
namespace {

constexpr int64_t kSinesWidth = 256;  // of times and sizes, whatever the model's width

at::Tensor sines_of(const at::Tensor& values, at::ScalarType dtype) {
  return timestep_embedding(values, kSinesWidth, /*flip_sin_to_cos=*/true, 0).to(dtype);
}

// [n] -> [n, width] f64.
at::Tensor sincos(const at::Tensor& places, int64_t width) {
  const int64_t half = width / 2;
  const at::Tensor exponent = at::arange(half, at::kDouble) / (static_cast<double>(width) / 2);
  const at::Tensor frequency = 1 / at::pow(10000, exponent);
  const at::Tensor angle = places.to(at::kDouble).unsqueeze(1) * frequency.unsqueeze(0);
  return at::cat({at::sin(angle), at::cos(angle)}, 1);
}

at::Tensor places_of(int64_t side, int64_t base_size, double interpolation_scale) {
  const double stretch = static_cast<double>(side) / static_cast<double>(base_size);
  return at::arange(side, at::kFloat) / stretch / interpolation_scale;
}

// A block whose norms are scaled, shifted and gated by the time: a learned table plus what
// adaln_single computes once for all blocks.
class AdaSingleBlock {
 public:
  AdaSingleBlock(const Scope& scope, const PixArtConfig& c)
      : table_(scope.add("scale_shift_table", {6, c.width()}, Init::kNormal,
                         1 / std::sqrt(static_cast<double>(c.width())))),
        norm1_(scope / "norm1", c.width(), c.norm_eps, affine(c)),
        self_(scope / "attn1", attention_shape(c, c.width())),
        norm2_(scope / "norm2", c.width(), c.norm_eps, affine(c)),
        cross_(scope / "attn2", attention_shape(c, c.cross_attention_dim)),
        feed_forward_(scope / "ff", c.width(), c.activation) {}

  // x [B, N, width], context [B, L, D], time [B, 6, width].
  at::Tensor operator()(const at::Tensor& x, const at::Tensor& context, const at::Tensor& time,
                        const std::optional<at::Tensor>& context_bias) const {
    const auto m = (table_.unsqueeze(0) + time).chunk(6, 1);
    const at::Tensor& shift_1 = m[0];
    const at::Tensor& scale_1 = m[1];
    const at::Tensor& gate_1 = m[2];
    const at::Tensor& shift_2 = m[3];
    const at::Tensor& scale_2 = m[4];
    const at::Tensor& gate_2 = m[5];
    const at::Tensor normed = norm1_(x) * (1 + scale_1) + shift_1;
    at::Tensor h = gate_1 * self_(normed, normed) + x;
    h = cross_(h, context, context_bias) + h;
    return gate_2 * feed_forward_(norm2_(h) * (1 + scale_2) + shift_2) + h;
  }

 private:
  static Affine affine(const PixArtConfig& c) {
    return c.norm_elementwise_affine ? Affine::kLearned : Affine::kNone;
  }
  static AttentionShape attention_shape(const PixArtConfig& c, int64_t context_width) {
    return {.width = c.width(),
            .context_width = context_width,
            .heads = c.num_attention_heads,
            .qkv_bias = c.attention_bias,
            .upcast = c.upcast_attention};
  }

  at::Tensor table_;
  LayerNorm norm1_;
  Attention self_;
  LayerNorm norm2_;
  Attention cross_;
  FeedForward feed_forward_;
};

// PixArtAlphaTextProjection.
struct CaptionProjection {
  CaptionProjection(const Scope& scope, int64_t in, int64_t width)
      : linear_1(scope / "linear_1", in, width), linear_2(scope / "linear_2", width, width) {}
  at::Tensor operator()(const at::Tensor& x) const {
    return linear_2(at::gelu(linear_1(x), "tanh"));
  }

  Linear linear_1, linear_2;
};

// AdaLayerNormSingle: what the blocks are told of the time and, with additional conditions, of
// the picture's size.
struct AdaSingle {
  AdaSingle(const Scope& scope, const PixArtConfig& c)
      : time(scope / "emb" / "timestep_embedder", kSinesWidth, c.width()),
        linear(scope / "linear", c.width(), 6 * c.width()) {
    if (!c.use_additional_conditions) return;
    resolution.emplace(scope / "emb" / "resolution_embedder", kSinesWidth, c.width() / 3);
    aspect_ratio.emplace(scope / "emb" / "aspect_ratio_embedder", kSinesWidth, c.width() / 3);
  }

  EmbeddingMlp time;
  Linear linear;
  std::optional<EmbeddingMlp> resolution, aspect_ratio;
};

// [B, h * w, p * p * C] -> [B, C, h * p, w * p].
at::Tensor picture_of(const at::Tensor& tokens, int64_t h, int64_t w, int64_t p) {
  const int64_t channels = tokens.size(2) / (p * p);
  return tokens.reshape({-1, h, w, p, p, channels})
      .permute({0, 5, 1, 3, 2, 4})
      .reshape({-1, channels, h * p, w * p});
}

}  // namespace

at::Tensor sincos_positions(int64_t height, int64_t width, int64_t width_of_model,
                            int64_t base_size, double interpolation_scale) {
  const int64_t half = width_of_model / 2;
  const at::Tensor columns = sincos(places_of(width, base_size, interpolation_scale), half);
  const at::Tensor rows = sincos(places_of(height, base_size, interpolation_scale), half);
  const std::vector<int64_t> grid = {height, width, half};
  return at::cat({columns.unsqueeze(0).expand(grid), rows.unsqueeze(1).expand(grid)}, 2)
      .reshape({1, height * width, width_of_model})
      .to(at::kFloat);
}

struct PixArtTransformer2DModel::Layers {
  Layers(const Scope& root, const PixArtConfig& c)
      : patches(root / "pos_embed" / "proj", c.in_channels, c.width(), c.patch_size, c.patch_size),
        adaln_single(root / "adaln_single", c),
        caption(make_caption(root / "caption_projection", c)),
        blocks(make_blocks(root / "transformer_blocks", c)),
        norm_out(root / "norm_out", c.width(), 1e-6, Affine::kNone),
        table_out(root.add("scale_shift_table", {2, c.width()}, Init::kNormal,
                           1 / std::sqrt(static_cast<double>(c.width())))),
        proj_out(root / "proj_out", c.width(), c.patch_size * c.patch_size * c.out_channels) {}

  static std::optional<CaptionProjection> make_caption(const Scope& scope, const PixArtConfig& c) {
    if (c.caption_channels == 0) return {};
    return CaptionProjection(scope, c.caption_channels, c.width());
  }
  using Block = Placed<AdaSingleBlock>;
  static std::vector<Block> make_blocks(const Scope& scope, const PixArtConfig& c) {
    std::vector<Block> blocks;
    for (int64_t i = 0; i < c.num_layers; ++i) blocks.emplace_back(scope / i, c);
    return blocks;
  }

  Conv2d patches;
  AdaSingle adaln_single;
  std::optional<CaptionProjection> caption;
  std::vector<Block> blocks;
  LayerNorm norm_out;
  at::Tensor table_out;
  Linear proj_out;
};

namespace {

// As PixArt's own training starts: captions and the model's output give nothing yet.
std::optional<Init> start_of(const NamedTensor& parameter) {
  const std::string layer = parameter.name.substr(0, parameter.name.rfind('.'));
  if (layer.ends_with("attn2.to_out.0") || layer == "proj_out") return Init::kZeros;
  return {};
}

}  // namespace

PixArtTransformer2DModel::PixArtTransformer2DModel(const PixArtConfig& config, WeightStart start)
    : config_(config),
      parameters_(start),
      layers_(std::make_unique<Layers>(Scope(parameters_), config_)) {
  parameters_.restart(start_of);
}

PixArtTransformer2DModel::~PixArtTransformer2DModel() = default;

at::Tensor PixArtTransformer2DModel::condition(const at::Tensor& timestep, at::ScalarType dtype,
                                               const PixArtConditions& conditions) const {
  const AdaSingle& l = layers_->adaln_single;
  const at::Tensor time = l.time(sines_of(timestep, dtype));
  if (!config_.use_additional_conditions) return time;
  YARD_CHECK(conditions.resolution && conditions.aspect_ratio);
  const auto embed = [&](const EmbeddingMlp& mlp, const at::Tensor& values) {
    return mlp(sines_of(values.flatten(), dtype)).reshape({time.size(0), -1});
  };
  return time + at::cat({embed(*l.resolution, *conditions.resolution),
                         embed(*l.aspect_ratio, *conditions.aspect_ratio)},
                        1);
}

at::Tensor PixArtTransformer2DModel::forward(const at::Tensor& hidden_states,
                                             const at::Tensor& encoder_hidden_states,
                                             const at::Tensor& timestep,
                                             const PixArtConditions& conditions) const {
  const Layers& l = *layers_;
  const PixArtConfig& c = config_;
  const int64_t rows = hidden_states.size(2) / c.patch_size;
  const int64_t columns = hidden_states.size(3) / c.patch_size;
  const at::Tensor positions = sincos_positions(
      rows, columns, c.width(), c.sample_size / c.patch_size, c.interpolation_scale);
  at::Tensor h = l.patches(hidden_states).flatten(2).transpose(1, 2);
  h = h + positions.to(h.device(), h.scalar_type());

  const at::Tensor embedded = condition(timestep, hidden_states.scalar_type(), conditions);
  const at::Tensor time =
      l.adaln_single.linear(at::silu(embedded)).reshape({h.size(0), 6, c.width()});
  const at::Tensor context =
      l.caption ? (*l.caption)(encoder_hidden_states) : encoder_hidden_states;
  std::optional<at::Tensor> bias;
  if (conditions.encoder_attention_mask) bias = bias_of_mask(*conditions.encoder_attention_mask);
  const BlockRunner run{activations_, &parameters_};
  for (const Layers::Block& block : l.blocks) {
    const tensor::SegmentForward forward = [&layer = block.layer,
                                            bias](const std::vector<at::Tensor>& in) {
      return layer(in[0], in[1], in[2], bias);
    };
    h = run(block.prefix, forward, {h, context, time});
  }
  const auto m = (l.table_out.unsqueeze(0) + embedded.unsqueeze(1)).chunk(2, 1);
  h = l.proj_out(l.norm_out(h) * (1 + m[1]) + m[0]);
  return picture_of(h, rows, columns, c.patch_size);
}

}  // namespace yard::models
