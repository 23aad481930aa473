// BlockRunner: how a forward pass runs the blocks of a model: what they compute on the way is kept
// for the backward pass, or computed again there.
#pragma once

#include <ATen/ops/alias.h>

#include <string>
#include <utility>
#include <vector>

#include "models/module.h"
#include "tensor/activation_checkpoint.h"

namespace yard::models {

struct BlockRunner {
  tensor::Activations activations = tensor::Activations::kKept;
  const ParameterList* parameters = nullptr;  // of the model; needed for kRecomputed

  // forward(inputs), whose parameters' names begin with `prefix`. What `forward` holds must live
  // until the backward pass is over. The same bits either way, gradients too: those of an input
  // that a block uses more than once, as a caption's states by keys and values, add up within the
  // block before they meet the other blocks'.
  at::Tensor operator()(const std::string& prefix, const tensor::SegmentForward& forward,
                        std::vector<at::Tensor> inputs) const {
    if (activations == tensor::Activations::kRecomputed)
      return tensor::checkpointed(forward, std::move(inputs), parameters->under(prefix));
    // A node of the graph for each input, at which a recomputed block would end.
    for (at::Tensor& input : inputs)
      if (input.defined() && input.requires_grad()) input = at::alias(input);
    return forward(inputs);
  }
};

// A layer and where its parameters are.
template <typename Layer>
struct Placed {
  template <typename... Arguments>
  explicit Placed(const Scope& scope, Arguments&&... arguments)
      : prefix(scope.prefix()), layer(scope, std::forward<Arguments>(arguments)...) {}

  std::string prefix;
  Layer layer;
};

}  // namespace yard::models
