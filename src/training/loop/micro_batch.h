// How many samples a rank computes at once: noted where memory ran out, measured for `auto`.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "collective/collective.h"
#include "loop/recipe.h"

namespace yard::loop {

// Notes stand in output_dir/micro_batches.json, by stage: what the recipe asked for, on how many
// ranks, and what is used. A run that starts again takes the same, so that sums are taken in the
// same order.
//
// kExhausted, ...: the note cannot be written.
Status note_micro_batch(const std::string& output_dir, const StageRecipe& stage, int rank_count);
// Lowers the stages' micro-batches to the notes of runs that were asked for the same, and remembers
// what was asked. Rank 0 reads for all. Collective. kInvalidArgument: not such a file.
Status take_noted_micro_batches(Recipe& recipe, const std::string& output_dir,
                                collective::Group& group);

// Peaks of tensor memory with one and with two samples.
struct MemoryPeaks {
  uint64_t one_bytes = 0;
  uint64_t two_bytes = 0;
};
// The most samples at once, up to `share`, whose peak stays in `budget_bytes`, when memory grows by
// as much with every sample; then as few as give as many micro-batches. At least 1. Pure.
int64_t choose_micro_batch(const MemoryPeaks& peaks, int64_t share, uint64_t budget_bytes);

}  // namespace yard::loop
