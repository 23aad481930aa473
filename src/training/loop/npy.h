// .npy members: one array each, in NumPy's own format (NEP 1), which WebDataset decodes by itself.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace yard::loop {

// The bytes of a contiguous CPU tensor of f32 or f16, little-endian, rows first.
std::string npy_bytes(const at::Tensor& tensor);
// A copy, as f32. kCorrupt, naming `what`: no such file, an array of another kind, of more than
// eight dimensions, or of other bytes than its shape says.
Result<at::Tensor> tensor_of_npy(std::span<const std::byte> bytes, std::string_view what);

}  // namespace yard::loop
