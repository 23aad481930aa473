// ShardedTensor: which elements of a named tensor this rank holds, and where.
//
// The description from which sharded checkpoints are written and read: together, the ranks of one
// shard group hold every element of every tensor exactly once.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "models/module.h"

namespace yard::parallel {

struct TensorPiece {
  int64_t begin = 0;  // index of its first element in the tensor, in row-major order
  // The elements [begin, begin + values.numel()): a 1-d contiguous view of the live buffer. Valid
  // for the owner's life; written by the next optimiser step.
  at::Tensor values;
};

struct ShardedTensor {
  std::string name;
  std::vector<int64_t> shape;  // of the whole tensor
  at::ScalarType dtype = at::kFloat;
  std::vector<TensorPiece> pieces;  // ascending, without overlap; empty: nothing of it is here
};

// Copies from whole tensors, found by name, what this rank holds of them. kInvalidArgument names
// `what` and the first tensor that is missing, of another shape or unknown; nothing is copied then.
Status copy_pieces(const std::vector<models::NamedTensor>& from,
                   const std::vector<ShardedTensor>& to, const std::string& what);

}  // namespace yard::parallel
