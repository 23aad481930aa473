// Pictures for prompts: the sampler of loop/diffusion.h with classifier-free guidance (Ho and
// Salimans 2022), rescaled where the recipe says so (Lin et al. 2024).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

#include "loop/diffusion.h"
#include "loop/networks.h"
#include "loop/recipe.h"

namespace yard::loop {

struct SamplerInput {
  at::Tensor tokens;              // [B, L] i64, the prompts
  at::Tensor empty_tokens;        // [1, L] i64, the caption without words
  std::vector<uint64_t> indices;  // B: which start noise each takes
  int64_t resolution = 0;         // of the pictures, pixels
};

// [B, 3, resolution, resolution], about [-1, 1]. No gradient.
at::Tensor sample_pictures(const Networks& networks, const DiffusionSchedule& schedule,
                           const Recipe& recipe, const SamplerInput& input);

}  // namespace yard::loop
