// fit_stages(): batches and resolutions that ranks and models can share and halve.
#include <fmt/format.h>

#include <algorithm>

#include "loop/recipe.h"

namespace yard::loop {
namespace {

// "8, 16 or 24": the three multiples of `unit` nearest to `value`.
std::string near_multiples(int64_t value, int64_t unit) {
  const int64_t middle = std::max<int64_t>(2, (value + unit / 2) / unit);
  return fmt::format("{}, {} or {}", (middle - 1) * unit, middle * unit, (middle + 1) * unit);
}

Status fit_batch(StageRecipe& stage, int rank_count) {
  if (stage.batch % rank_count != 0)
    return Error{
        Code::kInvalidArgument,
        fmt::format("stage '{}': a batch of {} cannot be shared by {} ranks; {} would fit",
                    stage.name, stage.batch, rank_count, near_multiples(stage.batch, rank_count))};
  const int64_t share = stage.batch / rank_count;
  if (stage.micro_batch == 0) stage.micro_batch = share;
  // Probed later, when there is a model to measure.
  if (stage.micro_batch != StageRecipe::kAutoMicroBatch)
    stage.micro_batch = std::min(stage.micro_batch, share);
  return Ok{};
}

Status fit_resolution(const StageRecipe& stage, const ModelFactors& factors) {
  const bool denoiser = stage.train == Train::kDenoiser;
  const int64_t unit = factors.autoencoder * (denoiser ? factors.unet : 1);
  if (stage.resolution % unit == 0) return Ok{};
  return Error{
      Code::kInvalidArgument,
      fmt::format("stage '{}': a resolution of {} is not a multiple of {} (autoencoder {}{}); {} "
                  "would fit",
                  stage.name, stage.resolution, unit, factors.autoencoder,
                  denoiser ? fmt::format(" x unet {}", factors.unet) : "",
                  near_multiples(stage.resolution, unit))};
}

}  // namespace

Status fit_stages(Recipe& recipe, int rank_count, const ModelFactors& factors) {
  for (StageRecipe& stage : recipe.stages) {
    YARD_TRY(fit_batch(stage, rank_count));
    YARD_TRY(fit_resolution(stage, factors));
  }
  return Ok{};
}

}  // namespace yard::loop
