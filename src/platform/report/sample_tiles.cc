#include "report/sample_tiles.h"

#include <algorithm>

namespace yard::report {
namespace {

constexpr int kGapMax = 32;

images::Picture cut(const images::Picture& grid, int left, int top, int side) {
  images::Picture tile{side, side, {}};
  tile.pixels.reserve(static_cast<size_t>(side) * side * 3);
  for (int y = 0; y < side; ++y) {
    const size_t begin = (static_cast<size_t>(top + y) * grid.width + left) * 3;
    const auto first = grid.pixels.begin() + static_cast<ptrdiff_t>(begin);
    tile.pixels.insert(tile.pixels.end(), first, first + ptrdiff_t{side} * 3);
  }
  return tile;
}

// The side of `count` tiles with `gap` between them along `length`, 0 when they do not fill it.
int side_of(int length, int count, int gap) {
  const int pixels = length - (count - 1) * gap;
  return pixels > 0 && pixels % count == 0 ? pixels / count : 0;
}

}  // namespace

std::optional<TileLayout> find_tile_layout(int width, int height, int picture_count,
                                           int resolution) {
  for (int columns = 1; columns <= picture_count; ++columns) {
    const int rows = (picture_count + columns - 1) / columns;
    for (int gap = 0; gap <= kGapMax; ++gap) {
      const int side = side_of(width, columns, gap);
      if (side == 0 || side != side_of(height, rows, gap)) continue;
      if (resolution > 0 && side % resolution != 0) continue;
      return TileLayout{columns, rows, side, gap};
    }
  }
  return std::nullopt;
}

std::vector<images::Picture> cut_tiles(const images::Picture& grid, const TileLayout& layout,
                                       int picture_count) {
  YARD_CHECK(picture_count <= layout.column_count * layout.row_count);
  std::vector<images::Picture> tiles;
  for (int i = 0; i < picture_count; ++i) {
    const int step = layout.side + layout.gap;
    tiles.push_back(
        cut(grid, i % layout.column_count * step, i / layout.column_count * step, layout.side));
  }
  return tiles;
}

}  // namespace yard::report
