#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>

#include <algorithm>
#include <vector>

#include "base/result.h"
#include "models/tiles_internal.h"

namespace yard::models {
namespace {

// The first `extent` rows (dimension 2) or columns (3) of `tile`, faded in from the last ones of
// `before`.
at::Tensor blend(const at::Tensor& before, const at::Tensor& tile, int64_t extent_max,
                 int64_t dimension) {
  const int64_t side = tile.size(dimension), side_before = before.size(dimension);
  const int64_t extent = std::min({side_before, side, extent_max});
  if (extent == 0) return tile;
  const auto doubles = at::TensorOptions(tile.device()).dtype(at::kDouble);
  const at::Tensor share = at::arange(extent, doubles) / static_cast<double>(extent);
  std::vector<int64_t> shape(4, 1);
  shape[static_cast<size_t>(dimension)] = extent;
  const at::Tensor in = share.to(tile.scalar_type()).view(shape);
  const at::Tensor out = (1 - share).to(tile.scalar_type()).view(shape);
  const at::Tensor faded = before.narrow(dimension, side_before - extent, extent) * out +
                           tile.narrow(dimension, 0, extent) * in;
  return at::cat({faded, tile.narrow(dimension, extent, side - extent)}, dimension);
}

using Row = std::vector<at::Tensor>;

at::Tensor cut(const at::Tensor& picture, int64_t top, int64_t left, int64_t side) {
  return picture.narrow(2, top, std::min(side, picture.size(2) - top))
      .narrow(3, left, std::min(side, picture.size(3) - left));
}

at::Tensor limit(const at::Tensor& tile, int64_t side) {
  return cut(tile, 0, 0, side);
}

}  // namespace

at::Tensor by_tiles(const at::Tensor& picture, const TileSizes& sizes,
                    const std::function<at::Tensor(const at::Tensor& tile)>& map) {
  const auto stride =
      static_cast<int64_t>(static_cast<double>(sizes.side_in) * (1 - sizes.overlap_factor));
  const auto extent =
      static_cast<int64_t>(static_cast<double>(sizes.side_out) * sizes.overlap_factor);
  YARD_CHECK(stride > 0 && extent < sizes.side_out);
  Row above;
  std::vector<at::Tensor> rows;
  for (int64_t top = 0; top < picture.size(2); top += stride) {
    Row row, kept;
    for (int64_t left = 0; left < picture.size(3); left += stride) {
      at::Tensor tile = map(cut(picture, top, left, sizes.side_in));
      // The neighbours as they were blended themselves: corners fade in both directions.
      if (!above.empty()) tile = blend(above[row.size()], tile, extent, 2);
      if (!row.empty()) tile = blend(row.back(), tile, extent, 3);
      row.push_back(tile);
      kept.push_back(limit(tile, sizes.side_out - extent));
    }
    rows.push_back(at::cat(kept, 3));
    above = std::move(row);
  }
  return at::cat(rows, 2);
}

}  // namespace yard::models
