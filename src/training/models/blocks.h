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

struct ResnetOptions {
  NormOptions norm;
  bool scale_shift = false;  // the time scales and shifts the second norm, else it is added before
  double output_scale_factor = 1;  // the sum of branch and shortcut is divided by it
};

// ResnetBlock2D: norm, SiLU, conv, (+ time), norm, SiLU, conv, + shortcut.
// [B, in, H, W], time embedding [B, T] or none -> [B, out, H, W].
class ResnetBlock {
 public:
  // time_width 0: no time embedding (autoencoder).
  ResnetBlock(const Scope& scope, int64_t in, int64_t out, int64_t time_width,
              const ResnetOptions& options);
  // `time` has been through SiLU already: it is the same for every block.
  at::Tensor operator()(const at::Tensor& x, const std::optional<at::Tensor>& time) const;

 private:
  GroupNorm norm1_;
  Conv2d conv1_;
  std::optional<Linear> time_;
  GroupNorm norm2_;
  Conv2d conv2_;
  std::optional<Conv2d> shortcut_;  // where in != out
  bool scale_shift_;
  double output_scale_factor_;
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
  // To that height and width instead: where the way down had to round.
  at::Tensor operator()(const at::Tensor& x, int64_t height, int64_t width) const;

 private:
  Conv2d conv_;
};

struct AttentionShape {
  int64_t width = 0;          // of what asks, and of the result
  int64_t context_width = 0;  // of what is asked
  int64_t heads = 1;
  bool qkv_bias = false;
  bool upcast = false;
};

// Attention with projections: `to_q`, `to_k`, `to_v`, `to_out.0`.
class Attention {
 public:
  Attention(const Scope& scope, const AttentionShape& shape);
  // `bias`: see AttentionOptions.
  at::Tensor operator()(const at::Tensor& x, const at::Tensor& context,
                        const std::optional<at::Tensor>& bias = std::nullopt) const;

 private:
  AttentionOptions options_;
  Linear q_, k_, v_, out_;
};

enum class Activation : uint8_t {
  kGeglu,     // half of the projection, times GELU of the other half
  kGelu,      // the exact one
  kGeluTanh,  // its approximation by tanh
};

// FeedForward: `net.0.proj` to four times the width, the activation, `net.2` back.
class FeedForward {
 public:
  FeedForward(const Scope& scope, int64_t width, Activation activation);
  at::Tensor operator()(const at::Tensor& x) const;

 private:
  Activation activation_;
  Linear in_, out_;
};

struct TransformerOptions {
  int64_t heads = 8;
  int64_t depth = 1;
  int64_t context_width = 1280;
  int64_t norm_groups = 32;
  bool linear_projection = false;
  bool only_cross_attention = false;  // the first attention asks the context too
  bool upcast_attention = false;
};

// BasicTransformerBlock: self-attention, cross-attention, GEGLU feed-forward, each after a
// LayerNorm and added to its input. [B, L, width] -> same.
class TransformerBlock {
 public:
  TransformerBlock(const Scope& scope, int64_t width, const TransformerOptions& options);
  at::Tensor operator()(const at::Tensor& x, const at::Tensor& context,
                        const std::optional<at::Tensor>& context_bias) const;

 private:
  bool only_cross_attention_;
  LayerNorm norm1_;
  Attention self_;
  LayerNorm norm2_;
  Attention cross_;
  LayerNorm norm3_;
  FeedForward feed_forward_;
};

// Transformer2DModel: pixels as tokens. [B, C, H, W], context [B, L, D] -> [B, C, H, W].
class SpatialTransformer {
 public:
  SpatialTransformer(const Scope& scope, int64_t channels, const TransformerOptions& options);
  // context_bias [B, 1, 1, L] is added to the scores of the context's tokens.
  at::Tensor operator()(const at::Tensor& x, const at::Tensor& context,
                        const std::optional<at::Tensor>& context_bias = std::nullopt) const;

 private:
  GroupNorm norm_;
  std::optional<Linear> linear_in_, linear_out_;
  std::optional<Conv2d> conv_in_, conv_out_;
  std::vector<TransformerBlock> blocks_;
};

}  // namespace yard::models
