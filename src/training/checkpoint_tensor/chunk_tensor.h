// Tensors as the chunks of a sharded checkpoint: what Saver takes and load() fills.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <string_view>

#include "base/result.h"
#include "checkpoint/load.h"
#include "checkpoint/saver.h"

namespace yard::checkpoint {

// The dtype's name in a checkpoint ("F32", "BF16", ...); empty where it has none.
std::string_view checkpoint_dtype(at::ScalarType type);

// `local` as the chunk `region` of the tensor `name`, whose whole shape is `shape`. It refers to
// the storage of `local`, which must live as long. kInvalidArgument, naming the tensor: not on the
// CPU, not contiguous, a dtype without a name, or of another number of elements than the region.
Result<TensorView> chunk_view(const std::string& name, const at::Tensor& local, Shape shape,
                              Region region);
// The same as a place to load to.
Result<TensorTarget> chunk_target(const std::string& name, const at::Tensor& local, Shape shape,
                                  Region region);

// The whole tensor as one chunk.
Result<TensorView> chunk_view(const std::string& name, const at::Tensor& whole);
Result<TensorTarget> chunk_target(const std::string& name, const at::Tensor& whole);

}  // namespace yard::checkpoint
