// Tensors whose memory is a file: for values that are whole once, on one rank, on their way to
// somewhere else, and may be larger than its memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "base/result.h"

namespace yard::tensor {

// A tensor of one dimension, of zeros, over a file of `folder` that has no name and goes with the
// tensor's storage, however the process ends. The kernel writes its pages out where memory is
// short. All of the disk it needs is taken at once: kExhausted when there is none; kNotFound: no
// such folder.
Result<at::Tensor> make_file_tensor(const std::string& folder, int64_t element_count,
                                    at::ScalarType type);

}  // namespace yard::tensor
