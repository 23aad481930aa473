// Tensors over plain memory and plain memory under tensors: where batches and collectives meet
// libtorch.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace yard::tensor {

// A copy of `values` in that shape, whose element count must be theirs.
at::Tensor copy_of(std::span<const float> values, at::IntArrayRef shape);
at::Tensor copy_of(std::span<const int64_t> values, at::IntArrayRef shape);

// The bytes of a contiguous CPU tensor. Valid while the tensor's storage lives.
std::span<std::byte> bytes_of(const at::Tensor& tensor);
// The values of a contiguous f32 CPU tensor, likewise.
std::span<float> floats_of(const at::Tensor& tensor);

}  // namespace yard::tensor
