// The layers that the models share. Each is a function object over tensors; shapes are PyTorch's.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "models/module.h"

namespace yard::models {

// [..., in] -> [..., out].
struct Linear {
  Linear(const Scope& scope, int64_t in, int64_t out, bool with_bias = true);
  at::Tensor operator()(const at::Tensor& x) const;

  at::Tensor weight;  // [out, in]
  std::optional<at::Tensor> bias;
};

// [B, in, H, W] -> [B, out, H', W'].
struct Conv2d {
  Conv2d(const Scope& scope, int64_t in, int64_t out, int64_t kernel, int64_t stride = 1,
         int64_t padding = 0);
  at::Tensor operator()(const at::Tensor& x) const;

  at::Tensor weight;  // [out, in, kernel, kernel]
  at::Tensor bias;
  int64_t stride;
  int64_t padding;
};

struct GroupNorm {
  GroupNorm(const Scope& scope, int64_t groups, int64_t channels, double eps);
  at::Tensor operator()(const at::Tensor& x) const;  // [B, channels, ...], same shape

  at::Tensor weight, bias;
  int64_t groups;
  double eps;
};

enum class Affine : uint8_t { kLearned, kNone };

struct LayerNorm {
  LayerNorm(const Scope& scope, int64_t width, double eps, Affine affine = Affine::kLearned);
  at::Tensor operator()(const at::Tensor& x) const;  // [..., width], same shape

  int64_t width;
  double eps;
  std::optional<at::Tensor> weight, bias;  // none without a learned affine map
};

struct AttentionOptions {
  int64_t heads = 1;
  bool causal = false;
  bool upcast = false;             // computes in f32 whatever the precision around it
  std::optional<at::Tensor> bias;  // added to the scores, broadcast to [B, heads, Lq, Lk]
};

// softmax(q k^T / sqrt(d)) v over the heads. q: [B, Lq, heads*d], k and v: [B, Lk, heads*d] ->
// [B, Lq, heads*d]. On a CPU it computes in f32 also under bf16 autocast: without a mask by a
// kernel of our own, that reads bf16 in place, else by torch's, whose bf16 kernel has a backward
// pass several times slower than the f32 one.
at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const AttentionOptions& options);
inline at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            int64_t heads, bool causal = false) {
  return attention(q, k, v, AttentionOptions{.heads = heads, .causal = causal});
}

// A mask [B, L] over what is asked, 1 keeps and 0 hides, as a bias of the scores: [B, 1, 1, L] of 0
// and -10000, diffusers' own number.
at::Tensor bias_of_mask(const at::Tensor& mask);

// [cos, sin] (flipped) or [sin, cos] of t * 10000^(-i / (width / 2 - freq_shift)): Ho et al. 2020,
// as diffusers' get_timestep_embedding. timesteps [B] -> [B, width] f32.
at::Tensor timestep_embedding(const at::Tensor& timesteps, int64_t width, bool flip_sin_to_cos,
                              double freq_shift);

// diffusers' TimestepEmbedding: `linear_1` (+ `cond_proj` of a condition), SiLU, `linear_2`.
struct EmbeddingMlp {
  // condition_width 0: takes no condition.
  EmbeddingMlp(const Scope& scope, int64_t in, int64_t out, int64_t condition_width = 0);
  // [B, in], condition [B, condition_width] -> [B, out].
  at::Tensor operator()(const at::Tensor& x,
                        const std::optional<at::Tensor>& condition = std::nullopt) const;

  Linear linear_1;
  std::optional<Linear> condition_projection;
  Linear linear_2;
};

}  // namespace yard::models
