// Latents of a data set by a recipe's model or a saved one: what `yard prep latents` does.
//
// Names no libtorch type.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/result.h"
#include "base/stop_token.h"
#include "loop/recipe.h"

namespace yard::loop {

struct LatentJob {
  Recipe recipe;       // its `model`, `precision` and what `data` says of members and bad samples
  std::string source;  // folder of shards; empty: the recipe's
  std::string folder;  // where latents go
  int64_t resolution = 0;
  bool text = false;  // the captions' states too; text encoders must be frozen
  bool half = false;
  int rank = 0;
  int rank_count = 1;
  int thread_count = 1;
};

struct LatentProgress {
  int64_t written_count = 0;  // shards by this rank
  int64_t present_count = 0;
  int64_t sample_count = 0;
};

// The recipe that a saved model is; its members are those of data's defaults.
Result<Recipe> recipe_of_model(const std::string& pipeline_dir);
// The resolution of the stage called `stage`; of the first denoiser stage where that is empty.
// kInvalidArgument: there is none.
Result<int64_t> stage_resolution(const Recipe& recipe, const std::string& stage);

// As write_latents(). kInvalidArgument besides: the autoencoder is yet to be trained by the recipe.
Result<LatentProgress> prepare_latents(
    LatentJob job, const StopToken& stop,
    const std::function<void(const LatentProgress&)>& shard_done);

}  // namespace yard::loop
