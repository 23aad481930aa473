#include "report/sample_tiles.h"

#include <gtest/gtest.h>

namespace yard::report {
namespace {

images::Picture plain(int side, uint8_t value) {
  return {side, side, std::vector<uint8_t>(static_cast<size_t>(side) * side * 3, value)};
}

TEST(SampleTilesTest, TilesOfAGridAreItsPictures) {
  for (const int columns : {1, 2, 3, 4, 8}) {
    for (const int gap : {0, 2, 5}) {
      std::vector<images::Picture> pictures;
      for (int i = 0; i < 8; ++i) pictures.push_back(plain(32, static_cast<uint8_t>(10 + i)));
      const images::Picture grid = images::grid(pictures, columns, gap);
      const auto layout = find_tile_layout(grid.width, grid.height, 8, 32);
      ASSERT_TRUE(layout) << columns << " columns, gap " << gap;
      EXPECT_EQ(layout->column_count, columns);
      const std::vector<images::Picture> tiles = cut_tiles(grid, *layout, 8);
      for (size_t i = 0; i < 8; ++i) EXPECT_EQ(tiles[i].pixels, pictures[i].pixels) << i;
    }
  }
}

TEST(SampleTilesTest, PictureThatIsNoSuchGridHasNoLayout) {
  EXPECT_FALSE(find_tile_layout(100, 37, 8, 32));
  EXPECT_FALSE(find_tile_layout(0, 0, 4, 0));
  EXPECT_FALSE(find_tile_layout(64, 64, 0, 32));
}

}  // namespace
}  // namespace yard::report
