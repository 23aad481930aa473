// Pictures of a saved model for prompts, as one PNG file: what `yard sample` does.
//
// Names no libtorch type.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/stop_token.h"

namespace yard::loop {

struct PictureOptions {
  std::string model;                 // a pipeline's folder
  std::vector<std::string> prompts;  // at least one
  std::string negative_prompt;       // what guidance leads away from
  int64_t count = 1;                 // pictures of each prompt
  int64_t width = 0;                 // pixels; 0: as the model was trained at last
  int64_t height = 0;
  int64_t steps = 25;
  double guidance = 5;
  double guidance_rescale = 0;
  std::string scheduler;  // "ddim", "ddpm", "euler", "dpm++", "flow"; empty: the folder's own
  uint64_t seed = 0;
  int64_t columns = 0;  // pictures a row; 0: a prompt's, or about a square of one each
  bool bf16 = false;
  int thread_count = 1;
};

// Writes all pictures into one grid, a prompt after the other. Equal options give equal bytes on
// one machine. kNotFound, kInvalidArgument: the model, or sides that it cannot halve (says what
// would fit); kCancelled. `picture_done` may be empty.
Status write_pictures(const PictureOptions& options, const std::string& png_path,
                      const StopToken& stop, const std::function<void(int64_t done)>& picture_done);

}  // namespace yard::loop
