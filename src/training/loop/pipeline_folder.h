// A whole model as a folder that diffusers' DiffusionPipeline.from_pretrained opens: saved, and
// read as the recipe that names its parts.
//
// StableDiffusionPipeline, StableDiffusionXLPipeline or PixArtAlphaPipeline, by the denoiser and
// the number of text encoders. The last one's text encoder is CLIP's here, not T5's.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "loop/networks.h"
#include "loop/recipe.h"
#include "models/scheduler_config.h"

namespace yard::loop {

// Writes `dir`; tokenizer files are copied. `sample_side`: pixels, the side that pictures are made
// at. `instead`: values of parameters, by their names, that are saved in place of what the models
// hold.
Status save_pipeline(const Networks& networks, const std::string& dir, const Recipe& recipe,
                     int64_t sample_side, const std::vector<models::NamedTensor>& instead = {});
// The autoencoder alone, for runs that train nothing else.
Status save_autoencoder(const Networks& networks, const std::string& dir, int64_t sample_side,
                        const std::vector<models::NamedTensor>& instead = {});

struct PipelineFolder {
  Recipe recipe;  // `model` alone is set: every part is read from its folder
  models::SchedulerConfig scheduler;
  int64_t side = 0;  // pixels, that pictures are made at by default
};
// What `dir` holds, without loading weights. kNotFound; kInvalidArgument: of another class, or a
// part that we do not have.
Result<PipelineFolder> read_pipeline(const std::string& dir);

}  // namespace yard::loop
