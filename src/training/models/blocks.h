// The blocks that UNet and autoencoder are built from, named as in diffusers.
#pragma once

#include <optional>
#include <vector>

#include "models/layers.h"

namespace yard::models {

struct NormOptions {
  int64_t groups = 32;
  double eps = 1e-5;
};

// [B, C, H, W] -> [B, H*W, C].
at::Tensor pixels_to_tokens(const at::Tensor& x);
// Back to [B, C, H, W], height, width and memory layout those of `like`: in another layout every
// later operation would have to convert.
at::Tensor tokens_to_pixels(const at::Tensor& tokens, const at::Tensor& like);

// ResnetBlock2D: norm, SiLU, conv, (+ time), norm, SiLU, conv, + shortcut.
// [B, in, H, W], time embedding [B, T] or none -> [B, out, H, W].
class ResnetBlock {
 public:
  // time_width 0: no time embedding (autoencoder).
  ResnetBlock(const Scope& scope, int64_t in, int64_t out, int64_t time_width, NormOptions norm);
  // `time` has been through SiLU already: it is the same for every block.
  at::Tensor operator()(const at::Tensor& x, const std::optional<at::Tensor>& time) const;

 private:
  GroupNorm norm1_;
  Conv2d conv1_;
  std::optional<Linear> time_;
  GroupNorm norm2_;
  Conv2d conv2_;
  std::optional<Conv2d> shortcut_;  // where in != out
};

// Halves height and width by a 3x3 convolution of stride 2. padding 0 pads right and below only,
// as the autoencoder does.
class Downsample {
 public:
  Downsample(const Scope& scope, int64_t channels, int64_t padding);
  at::Tensor operator()(const at::Tensor& x) const;

 private:
  Conv2d conv_;
};

// Doubles height and width, then a 3x3 convolution.
class Upsample {
 public:
  Upsample(const Scope& scope, int64_t channels);
  at::Tensor operator()(const at::Tensor& x) const;

 private:
  Conv2d conv_;
};

// Attention with projections: `to_q`, `to_k`, `to_v`, `to_out.0`.
class Attention {
 public:
  Attention(const Scope& scope, int64_t width, int64_t context_width, int64_t heads,
            bool with_qkv_bias);
  at::Tensor operator()(const at::Tensor& x, const at::Tensor& context) const;

 private:
  int64_t heads_;
  Linear q_, k_, v_, out_;
};

// BasicTransformerBlock: self-attention, cross-attention, GEGLU feed-forward, each after a
// LayerNorm and added to its input. [B, L, width] -> same.
class TransformerBlock {
 public:
  TransformerBlock(const Scope& scope, int64_t width, int64_t heads, int64_t context_width);
  at::Tensor operator()(const at::Tensor& x, const at::Tensor& context) const;

 private:
  LayerNorm norm1_;
  Attention self_;
  LayerNorm norm2_;
  Attention cross_;
  LayerNorm norm3_;
  Linear geglu_, out_;
};

struct TransformerOptions {
  int64_t heads = 8;
  int64_t depth = 1;
  int64_t context_width = 1280;
  int64_t norm_groups = 32;
  bool linear_projection = false;
};

// Transformer2DModel: pixels as tokens. [B, C, H, W], context [B, L, D] -> [B, C, H, W].
class SpatialTransformer {
 public:
  SpatialTransformer(const Scope& scope, int64_t channels, const TransformerOptions& options);
  at::Tensor operator()(const at::Tensor& x, const at::Tensor& context) const;

 private:
  GroupNorm norm_;
  std::optional<Linear> linear_in_, linear_out_;
  std::optional<Conv2d> conv_in_, conv_out_;
  std::vector<TransformerBlock> blocks_;
};

}  // namespace yard::models
