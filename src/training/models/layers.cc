#include "models/layers.h"

#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/group_norm.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/sin.h>

#include <cmath>

#include "models/cpu_attention_internal.h"

namespace yard::models {

Linear::Linear(const Scope& scope, int64_t in, int64_t out, bool with_bias)
    : weight(scope.add("weight", {out, in}, Init::kUniformFanIn, static_cast<double>(in))) {
  if (with_bias) bias = scope.add("bias", {out}, Init::kUniformFanIn, static_cast<double>(in));
}

at::Tensor Linear::operator()(const at::Tensor& x) const {
  return at::linear(x, weight, bias);
}

Conv2d::Conv2d(const Scope& scope, int64_t in, int64_t out, int64_t kernel, int64_t stride,
               int64_t padding)
    : weight(scope.add("weight", {out, in, kernel, kernel}, Init::kUniformFanIn,
                       static_cast<double>(in * kernel * kernel))),
      bias(
          scope.add("bias", {out}, Init::kUniformFanIn, static_cast<double>(in * kernel * kernel))),
      stride(stride),
      padding(padding) {}

at::Tensor Conv2d::operator()(const at::Tensor& x) const {
  return at::conv2d(x, weight, bias, stride, padding);
}

GroupNorm::GroupNorm(const Scope& scope, int64_t groups, int64_t channels, double eps)
    : weight(scope.add("weight", {channels}, Init::kOnes)),
      bias(scope.add("bias", {channels}, Init::kZeros)),
      groups(groups),
      eps(eps) {}

at::Tensor GroupNorm::operator()(const at::Tensor& x) const {
  return at::group_norm(x, groups, weight, bias, eps);
}

LayerNorm::LayerNorm(const Scope& scope, int64_t width, double eps, Affine affine)
    : width(width), eps(eps) {
  if (affine == Affine::kNone) return;
  weight = scope.add("weight", {width}, Init::kOnes);
  bias = scope.add("bias", {width}, Init::kZeros);
}

at::Tensor LayerNorm::operator()(const at::Tensor& x) const {
  return at::layer_norm(x, width, weight, bias, eps);
}

namespace {

// [B, L, heads*d] -> [B, heads, L, d]
at::Tensor split_heads(const at::Tensor& x, int64_t heads) {
  return x.view({x.size(0), x.size(1), heads, x.size(2) / heads}).transpose(1, 2);
}

at::Tensor attention_as_given(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const AttentionOptions& o) {
  const at::Tensor out =
      at::scaled_dot_product_attention(split_heads(q, o.heads), split_heads(k, o.heads),
                                       split_heads(v, o.heads), o.bias, 0.0, o.causal);
  return out.transpose(1, 2).reshape(q.sizes());
}

}  // namespace

at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const AttentionOptions& options) {
  if (!options.causal && !options.bias && internal::cpu_attention_takes(q, k, v))
    return internal::cpu_attention(q, k, v, options.heads);
  const bool wants_f32 = q.device().is_cpu() || options.upcast;
  if (q.scalar_type() == at::kFloat || !wants_f32) return attention_as_given(q, k, v, options);
  // Autocast would turn the operands back into bf16.
  c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  return attention_as_given(q.to(at::kFloat), k.to(at::kFloat), v.to(at::kFloat), options);
}

at::Tensor bias_of_mask(const at::Tensor& mask) {
  return ((1 - mask.to(at::kFloat)) * -10000.0).unsqueeze(1).unsqueeze(1);
}

at::Tensor timestep_embedding(const at::Tensor& timesteps, int64_t width, bool flip_sin_to_cos,
                              double freq_shift) {
  const int64_t half = width / 2;
  const auto options = at::TensorOptions().dtype(at::kFloat).device(timesteps.device());
  const at::Tensor exponent = at::arange(0, half, options) * -std::log(10000.0);
  const at::Tensor frequency = at::exp(exponent / (static_cast<double>(half) - freq_shift));
  const at::Tensor angle = timesteps.to(at::kFloat).unsqueeze(1) * frequency.unsqueeze(0);
  const at::Tensor sin = at::sin(angle), cos = at::cos(angle);
  return flip_sin_to_cos ? at::cat({cos, sin}, 1) : at::cat({sin, cos}, 1);
}

EmbeddingMlp::EmbeddingMlp(const Scope& scope, int64_t in, int64_t out, int64_t condition_width)
    : linear_1(scope / "linear_1", in, out),
      condition_projection(condition_width > 0
                               ? std::optional<Linear>(std::in_place, scope / "cond_proj",
                                                       condition_width, in, /*with_bias=*/false)
                               : std::nullopt),
      linear_2(scope / "linear_2", out, out) {}

at::Tensor EmbeddingMlp::operator()(const at::Tensor& x,
                                    const std::optional<at::Tensor>& condition) const {
  const at::Tensor in = condition ? x + (*condition_projection)(*condition) : x;
  return linear_2(at::silu(linear_1(in)));
}

}  // namespace yard::models
