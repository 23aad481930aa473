// A picture mapped tile by tile by something that changes its size, and put together again.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

namespace yard::models {

struct TileSizes {
  int64_t side_in = 0;   // of a tile, before and after the map; those at the right and at the
  int64_t side_out = 0;  // bottom may be smaller
  double overlap_factor = 0;
};

// [B, C, H, W] -> [B, C', H', W']. Tiles start every side_in * (1 - overlap_factor) pixels; each is
// faded into from the one above, then from the one at its left, over side_out * overlap_factor.
at::Tensor by_tiles(const at::Tensor& picture, const TileSizes& sizes,
                    const std::function<at::Tensor(const at::Tensor& tile)>& map);

}  // namespace yard::models
