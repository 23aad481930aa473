// Random draws that belong to a sample of a step, not to a rank: the same for any number of ranks,
// micro-batches and restarts.
//
// Pure functions of their arguments; nothing is stored. Philox counters, see base/random.h.
#pragma once

#include <cstdint>
#include <span>

namespace yard::tensor {

// What a draw is for. Values are part of what makes a run repeatable: never renumber.
enum class Purpose : uint32_t {
  kNoise = 1,     // added to latents in training
  kTimestep = 2,  // which timestep
  kCaptionDropout = 3,
  kLatentSample = 4,  // reparameterisation when training an autoencoder
  kSampling = 5,      // the start of a sample picture; sample = prompt's index
  kEvaluationNoise = 6,
  kEvaluationTimestep = 7,
  kSyntheticLatent = 8,
  kSyntheticText = 9,
  kNoiseOffset = 10,  // a constant per channel, added to noise
};

struct Draw {
  uint64_t seed = 0;
  Purpose purpose = Purpose::kNoise;
  uint64_t step = 0;    // global, 0 where draws do not change with time
  uint64_t sample = 0;  // id in the data set
};

// Fills `out` (at most 2^34 values) with N(0, 1): Box and Muller 1958 on 24-bit uniforms, so at
// most 5.8 from 0. Element i depends on `draw` and i alone.
void fill_normal(const Draw& draw, std::span<float> out);
// Uniform in [0, 1).
double draw_uniform(const Draw& draw);
// Uniform in [0, bound). bound > 0.
int64_t draw_below(const Draw& draw, int64_t bound);

}  // namespace yard::tensor
