#include "models/blocks.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/upsample_nearest2d.h>

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
                         NormOptions norm)
    : norm1_(scope / "norm1", norm.groups, in, norm.eps),
      conv1_(scope / "conv1", in, out, 3, 1, 1),
      time_(time_width > 0
                ? std::optional<Linear>(std::in_place, scope / "time_emb_proj", time_width, out)
                : std::nullopt),
      norm2_(scope / "norm2", norm.groups, out, norm.eps),
      conv2_(scope / "conv2", out, out, 3, 1, 1),
      shortcut_(in != out
                    ? std::optional<Conv2d>(std::in_place, scope / "conv_shortcut", in, out, 1)
                    : std::nullopt) {}

at::Tensor ResnetBlock::operator()(const at::Tensor& x,
                                   const std::optional<at::Tensor>& time) const {
  at::Tensor h = conv1_(at::silu(norm1_(x)));
  if (time_) h = h + (*time_)(*time).unsqueeze(2).unsqueeze(3);
  h = conv2_(at::silu(norm2_(h)));
  return (shortcut_ ? (*shortcut_)(x) : x) + h;
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
  return conv_(at::upsample_nearest2d(x, {x.size(2) * 2, x.size(3) * 2}));
}

Attention::Attention(const Scope& scope, int64_t width, int64_t context_width, int64_t heads,
                     bool with_qkv_bias)
    : heads_(heads),
      q_(scope / "to_q", width, width, with_qkv_bias),
      k_(scope / "to_k", context_width, width, with_qkv_bias),
      v_(scope / "to_v", context_width, width, with_qkv_bias),
      out_(scope / "to_out" / 0, width, width) {}

at::Tensor Attention::operator()(const at::Tensor& x, const at::Tensor& context) const {
  return out_(attention(q_(x), k_(context), v_(context), heads_));
}

TransformerBlock::TransformerBlock(const Scope& scope, int64_t width, int64_t heads,
                                   int64_t context_width)
    : norm1_(scope / "norm1", width, 1e-5),
      self_(scope / "attn1", width, width, heads, false),
      norm2_(scope / "norm2", width, 1e-5),
      cross_(scope / "attn2", width, context_width, heads, false),
      norm3_(scope / "norm3", width, 1e-5),
      geglu_(scope / "ff" / "net" / 0 / "proj", width, 8 * width),
      out_(scope / "ff" / "net" / 2, 4 * width, width) {}

at::Tensor TransformerBlock::operator()(const at::Tensor& x, const at::Tensor& context) const {
  const at::Tensor normed = norm1_(x);
  at::Tensor h = x + self_(normed, normed);
  h = h + cross_(norm2_(h), context);
  const auto halves = geglu_(norm3_(h)).chunk(2, -1);
  return h + out_(halves[0] * at::gelu(halves[1]));
}

SpatialTransformer::SpatialTransformer(const Scope& scope, int64_t channels,
                                       const TransformerOptions& options)
    : norm_(scope / "norm", options.norm_groups, channels, 1e-6) {
  if (options.linear_projection)
    linear_in_.emplace(scope / "proj_in", channels, channels);
  else
    conv_in_.emplace(scope / "proj_in", channels, channels, 1);
  for (int64_t i = 0; i < options.depth; ++i) {
    blocks_.emplace_back(scope / "transformer_blocks" / i, channels, options.heads,
                         options.context_width);
  }
  if (options.linear_projection)
    linear_out_.emplace(scope / "proj_out", channels, channels);
  else
    conv_out_.emplace(scope / "proj_out", channels, channels, 1);
}

at::Tensor SpatialTransformer::operator()(const at::Tensor& x, const at::Tensor& context) const {
  at::Tensor h = norm_(x);
  if (conv_in_) h = (*conv_in_)(h);
  h = pixels_to_tokens(h);
  if (linear_in_) h = (*linear_in_)(h);
  for (const TransformerBlock& block : blocks_) h = block(h, context);
  if (linear_out_) h = (*linear_out_)(h);
  h = tokens_to_pixels(h, x);
  if (conv_out_) h = (*conv_out_)(h);
  return h + x;
}

}  // namespace yard::models
