// Pictures for prompts: models/' sampling plans with classifier-free guidance (Ho and Salimans
// 2022), rescaled where asked (Lin et al. 2024).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "loop/networks.h"
#include "loop/recipe.h"
#include "models/sampling_plan.h"

namespace yard::loop {

struct SamplerInput {
  at::Tensor tokens;              // [B, ids of a caption] i64, the prompts
  at::Tensor empty_tokens;        // [B or 1, ...] i64: what is to be kept away from
  std::vector<uint64_t> indices;  // B: which noise each takes
  int64_t height = 0;             // of the pictures, pixels
  int64_t width = 0;
  uint64_t seed = 0;
  double guidance = 5;  // 1: none
  double guidance_rescale = 0;
  bool bf16 = false;
};

// [B, 3, height, width], about [-1, 1]. No gradient.
at::Tensor sample_pictures(const Networks& networks, const models::SamplingPlan& plan,
                           const SamplerInput& input);

// The plan of a recipe's own samples. kInvalidArgument: so many steps cannot be taken.
Result<models::SamplingPlan> sampling_plan_of(const Recipe& recipe);

}  // namespace yard::loop
