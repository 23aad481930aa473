// Attention without a mask by kernels/attention.h, for autograd.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace yard::models::internal {

// Whether cpu_attention takes them: tensors of a CPU, all three f32 or all three bf16.
bool cpu_attention_takes(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);

// softmax(q k^T / sqrt(d)) v over the heads, in f32 arithmetic. q: [B, Lq, heads*d], k and v:
// [B, Lk, heads*d] -> [B, Lq, heads*d] of their type. Gradients once, not gradients of gradients.
at::Tensor cpu_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                         int64_t heads);

}  // namespace yard::models::internal
