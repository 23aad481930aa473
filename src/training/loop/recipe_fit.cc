// fit_stages(): batches and resolutions that ranks and models can share and halve.
#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "loop/recipe.h"

namespace yard::loop {
namespace {

// "8, 16 or 24": the three multiples of `unit` nearest to `value`.
std::string near_multiples(int64_t value, int64_t unit) {
  const int64_t middle = std::max<int64_t>(2, (value + unit / 2) / unit);
  return fmt::format("{}, {} or {}", (middle - 1) * unit, middle * unit, (middle + 1) * unit);
}

// A stage that is meant for more ranks runs on fewer too: the batch stays, each rank has more of
// it.
Status fit_ranks(const StageRecipe& stage, int rank_count) {
  if (stage.ranks == 0 || stage.ranks == rank_count) return Ok{};
  log_warning(
      "stage '{}' is meant for {} ranks and there are {}{}: the batch stays {}, {} samples a "
      "rank and step instead of {}",
      stage.name, stage.ranks, rank_count,
      rank_count < stage.ranks ? fmt::format(", {} are missing", stage.ranks - rank_count) : "",
      stage.batch, stage.batch / rank_count, stage.batch / stage.ranks);
  return Ok{};
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

Status fit_side(const StageRecipe& stage, std::string_view what, int64_t side,
                const ModelFactors& factors) {
  const bool denoiser = stage.train == Train::kDenoiser;
  const int64_t unit = factors.autoencoder * (denoiser ? factors.denoiser : 1);
  if (side % unit == 0) return Ok{};
  return Error{
      Code::kInvalidArgument,
      fmt::format("stage '{}': {} of {} is not a multiple of {} (autoencoder {}{}); {} would fit",
                  stage.name, what, side, unit, factors.autoencoder,
                  denoiser ? fmt::format(" x denoiser {}", factors.denoiser) : "",
                  near_multiples(side, unit))};
}

Status fit_resolution(const StageRecipe& stage, const ModelFactors& factors) {
  YARD_TRY(fit_side(stage, "a resolution", stage.resolution, factors));
  for (const PictureSide& bucket : stage.aspect_buckets)
    for (const int64_t side : {bucket.width, bucket.height})
      YARD_TRY(fit_side(stage, "an aspect bucket's side", side, factors));
  return Ok{};
}

}  // namespace

Status fit_stages(Recipe& recipe, int rank_count, const ModelFactors& factors) {
  for (StageRecipe& stage : recipe.stages) {
    YARD_TRY(fit_batch(stage, rank_count));
    YARD_TRY(fit_ranks(stage, rank_count));
    YARD_TRY(fit_resolution(stage, factors));
  }
  return Ok{};
}

}  // namespace yard::loop
