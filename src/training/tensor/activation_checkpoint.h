// Activation checkpointing (Chen et al. 2016): a stretch of a model whose inner results are not
// kept for the backward pass, which computes them again.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace yard::tensor {

enum class Activations : uint8_t { kKept, kRecomputed };

// Computes one tensor from the inputs, and from the parameters that it knows of.
using SegmentForward = std::function<at::Tensor(const std::vector<at::Tensor>& inputs)>;

// forward(inputs), of which only the inputs are kept. The backward pass calls `forward` again, with
// the random state and the autocast of this call, and gives gradients to `inputs` and `parameters`:
// every leaf that `forward` uses beside the inputs must be among them. Each leaf's gradient is
// added up once, together with what other uses of it give: hooks after that (post-accumulate) see
// the sum, hooks of the tensor itself are called for each part. What `forward` holds must live
// until the backward pass is over. Without need of a gradient it is just forward(inputs).
at::Tensor checkpointed(const SegmentForward& forward, std::vector<at::Tensor> inputs,
                        std::vector<at::Tensor> parameters);

}  // namespace yard::tensor
