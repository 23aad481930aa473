#include "models/blocks.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/upsample_nearest2d.h>

#include "base/result.h"

namespace yard::models {

at::Tensor pixels_to_tokens(const at::Tensor& x) {
  return x.permute({0, 2, 3, 1}).reshape({x.size(0), x.size(2) * x.size(3), x.size(1)});
}

at::Tensor tokens_to_pixels(const at::Tensor& tokens, const at::Tensor& like) {
  const at::Tensor pixels =
      tokens.view({like.size(0), like.size(2), like.size(3), tokens.size(2)}).permute({0, 3, 1, 2});
  return pixels.contiguous(like.suggest_memory_format());
}

ResnetBlock::ResnetBlock(const Scope& scope, int64_t in, int64_t out, int64_t time_width,
                         const ResnetOptions& options)
    : norm1_(scope / "norm1", options.norm.groups, in, options.norm.eps),
      conv1_(scope / "conv1", in, out, 3, 1, 1),
      time_(time_width > 0 ? std::optional<Linear>(std::in_place, scope / "time_emb_proj",
                                                   time_width, options.scale_shift ? 2 * out : out)
                           : std::nullopt),
      norm2_(scope / "norm2", options.norm.groups, out, options.norm.eps),
      conv2_(scope / "conv2", out, out, 3, 1, 1),
      shortcut_(in != out
                    ? std::optional<Conv2d>(std::in_place, scope / "conv_shortcut", in, out, 1)
                    : std::nullopt),
      scale_shift_(options.scale_shift),
      output_scale_factor_(options.output_scale_factor) {}

at::Tensor ResnetBlock::operator()(const at::Tensor& x,
                                   const std::optional<at::Tensor>& time) const {
  at::Tensor h = conv1_(at::silu(norm1_(x)));
  if (!time_) {
    h = norm2_(h);
  } else if (const at::Tensor t = (*time_)(*time).unsqueeze(2).unsqueeze(3); scale_shift_) {
    const auto halves = t.chunk(2, 1);
    h = norm2_(h) * (1 + halves[0]) + halves[1];
  } else {
    h = norm2_(h + t);
  }
  h = (shortcut_ ? (*shortcut_)(x) : x) + conv2_(at::silu(h));
  return output_scale_factor_ == 1 ? h : h / output_scale_factor_;
}

Downsample::Downsample(const Scope& scope, int64_t channels, int64_t padding)
    : conv_(scope / "conv", channels, channels, 3, 2, padding) {}

at::Tensor Downsample::operator()(const at::Tensor& x) const {
  if (conv_.padding > 0) return conv_(x);
  return conv_(at::constant_pad_nd(x, {0, 1, 0, 1}));
}

Upsample::Upsample(const Scope& scope, int64_t channels)
    : conv_(scope / "conv", channels, channels, 3, 1, 1) {}

at::Tensor Upsample::operator()(const at::Tensor& x) const {
  return (*this)(x, x.size(2) * 2, x.size(3) * 2);
}

at::Tensor Upsample::operator()(const at::Tensor& x, int64_t height, int64_t width) const {
  return conv_(at::upsample_nearest2d(x, {height, width}));
}

Attention::Attention(const Scope& scope, const AttentionShape& shape)
    : options_{.heads = shape.heads, .upcast = shape.upcast, .bias = {}},
      q_(scope / "to_q", shape.width, shape.width, shape.qkv_bias),
      k_(scope / "to_k", shape.context_width, shape.width, shape.qkv_bias),
      v_(scope / "to_v", shape.context_width, shape.width, shape.qkv_bias),
      out_(scope / "to_out" / 0, shape.width, shape.width) {}

at::Tensor Attention::operator()(const at::Tensor& x, const at::Tensor& context,
                                 const std::optional<at::Tensor>& bias) const {
  AttentionOptions options = options_;
  options.bias = bias;
  return out_(attention(q_(x), k_(context), v_(context), options));
}

FeedForward::FeedForward(const Scope& scope, int64_t width, Activation activation)
    : activation_(activation),
      in_(scope / "net" / 0 / "proj", width, (activation == Activation::kGeglu ? 8 : 4) * width),
      out_(scope / "net" / 2, 4 * width, width) {}

at::Tensor FeedForward::operator()(const at::Tensor& x) const {
  const at::Tensor wide = in_(x);
  switch (activation_) {
    case Activation::kGeglu: {
      const auto halves = wide.chunk(2, -1);
      return out_(halves[0] * at::gelu(halves[1]));
    }
    case Activation::kGelu:
      return out_(at::gelu(wide));
    case Activation::kGeluTanh:
      return out_(at::gelu(wide, "tanh"));
  }
  YARD_UNREACHABLE();
}

TransformerBlock::TransformerBlock(const Scope& scope, int64_t width, const TransformerOptions& o)
    : only_cross_attention_(o.only_cross_attention),
      norm1_(scope / "norm1", width, 1e-5),
      self_(scope / "attn1", {.width = width,
                              .context_width = o.only_cross_attention ? o.context_width : width,
                              .heads = o.heads,
                              .upcast = o.upcast_attention}),
      norm2_(scope / "norm2", width, 1e-5),
      cross_(scope / "attn2", {.width = width,
                               .context_width = o.context_width,
                               .heads = o.heads,
                               .upcast = o.upcast_attention}),
      norm3_(scope / "norm3", width, 1e-5),
      feed_forward_(scope / "ff", width, Activation::kGeglu) {}

at::Tensor TransformerBlock::operator()(const at::Tensor& x, const at::Tensor& context,
                                        const std::optional<at::Tensor>& context_bias) const {
  const at::Tensor normed = norm1_(x);
  at::Tensor h = x + self_(normed, only_cross_attention_ ? context : normed);
  h = h + cross_(norm2_(h), context, context_bias);
  return h + feed_forward_(norm3_(h));
}

SpatialTransformer::SpatialTransformer(const Scope& scope, int64_t channels,
                                       const TransformerOptions& options)
    : norm_(scope / "norm", options.norm_groups, channels, 1e-6) {
  if (options.linear_projection)
    linear_in_.emplace(scope / "proj_in", channels, channels);
  else
    conv_in_.emplace(scope / "proj_in", channels, channels, 1);
  for (int64_t i = 0; i < options.depth; ++i) {
    blocks_.emplace_back(scope / "transformer_blocks" / i, channels, options);
  }
  if (options.linear_projection)
    linear_out_.emplace(scope / "proj_out", channels, channels);
  else
    conv_out_.emplace(scope / "proj_out", channels, channels, 1);
}

at::Tensor SpatialTransformer::operator()(const at::Tensor& x, const at::Tensor& context,
                                          const std::optional<at::Tensor>& context_bias) const {
  at::Tensor h = norm_(x);
  if (conv_in_) h = (*conv_in_)(h);
  h = pixels_to_tokens(h);
  if (linear_in_) h = (*linear_in_)(h);
  for (const TransformerBlock& block : blocks_) h = block(h, context, context_bias);
  if (linear_out_) h = (*linear_out_)(h);
  h = tokens_to_pixels(h, x);
  if (conv_out_) h = (*conv_out_)(h);
  return h + x;
}

}  // namespace yard::models
