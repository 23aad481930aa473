// A sample grid (images::grid of one picture per prompt) cut back into its pictures. Pure.
#pragma once

#include <optional>
#include <vector>

#include "images/picture.h"

namespace yard::report {

struct TileLayout {
  int column_count = 0;
  int row_count = 0;
  int side = 0;  // pixels of one square picture
  int gap = 0;   // pixels between two
};

// The layout of `picture_count` square pictures, row by row, that makes exactly this size; the side
// is a multiple of `resolution` when that is > 0. nullopt when there is none.
std::optional<TileLayout> find_tile_layout(int width, int height, int picture_count,
                                           int resolution);

// The first `picture_count` tiles in reading order.
std::vector<images::Picture> cut_tiles(const images::Picture& grid, const TileLayout& layout,
                                       int picture_count);

}  // namespace yard::report
