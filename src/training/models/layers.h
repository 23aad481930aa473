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

struct LayerNorm {
  LayerNorm(const Scope& scope, int64_t width, double eps);
  at::Tensor operator()(const at::Tensor& x) const;  // [..., width], same shape

  at::Tensor weight, bias;
  double eps;
};

// softmax(q k^T / sqrt(d)) v over `heads` heads. q: [B, Lq, heads*d], k and v: [B, Lk, heads*d] ->
// [B, Lq, heads*d]. Under bf16 autocast it computes in f32: the CPU's bf16 kernel has a backward
// pass several times slower than the f32 one.
at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, int64_t heads,
                     bool causal = false);

// [cos, sin] (flipped) or [sin, cos] of t * 10000^(-i / (width / 2 - freq_shift)): Ho et al. 2020,
// as diffusers' get_timestep_embedding. timesteps [B] -> [B, width] f32.
at::Tensor timestep_embedding(const at::Tensor& timesteps, int64_t width, bool flip_sin_to_cos,
                              double freq_shift);

}  // namespace yard::models
