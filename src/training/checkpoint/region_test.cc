#include "checkpoint/region.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <vector>

namespace yard::checkpoint {
namespace {

// The elements of a region, by its definition and not by its runs.
std::vector<uint64_t> elements_of(const Region& region, const Shape& shape) {
  uint64_t count = 1;
  for (const uint64_t side : shape) count *= side;
  std::vector<uint64_t> elements;
  for (uint64_t flat = 0; flat < count; ++flat) {
    bool is_in = region.kind != Region::Kind::kFlat ||
                 (flat >= region.sides[0].begin && flat < region.sides[0].end);
    uint64_t rest = flat;
    for (size_t i = shape.size(); i-- > 0; rest /= shape[i])
      if (region.kind == Region::Kind::kBox)
        is_in = is_in && rest % shape[i] >= region.sides[i].begin &&
                rest % shape[i] < region.sides[i].end;
    if (is_in) elements.push_back(flat);
  }
  return elements;
}

std::vector<uint64_t> elements_of_runs(const Region& region, const Shape& shape) {
  std::vector<uint64_t> elements;
  for (RunCursor cursor(region, shape); !cursor.done(); cursor.next()) {
    EXPECT_EQ(cursor.position(), elements.size());
    for (uint64_t i = cursor.run().begin; i < cursor.run().end; ++i) elements.push_back(i);
  }
  return elements;
}

Region random_region(const Shape& shape, std::mt19937& dice) {
  const auto interval = [&](uint64_t size) {
    uint64_t a = dice() % (size + 1), b = dice() % (size + 1);
    if (dice() % 3 == 0) a = 0, b = size;
    return Interval{std::min(a, b), std::max(a, b)};
  };
  if (dice() % 4 == 0) return Region::all();
  uint64_t count = 1;
  for (const uint64_t side : shape) count *= side;
  if (dice() % 3 == 0) {
    const Interval side = interval(count);
    return Region::flat(side.begin, side.end);
  }
  std::vector<Interval> sides;
  for (const uint64_t side : shape) sides.push_back(interval(side));
  return Region::box(std::move(sides));
}

Shape random_shape(std::mt19937& dice) {
  Shape shape(dice() % 5);
  for (uint64_t& side : shape) side = dice() % 8 == 0 ? 0 : 1 + dice() % 5;
  return shape;
}

TEST(Region, TheRunsOfRandomRegionsAreTheirElementsInOrder) {
  std::mt19937 dice(1);
  for (int i = 0; i < 3000; ++i) {
    const Shape shape = random_shape(dice);
    const Region region = random_region(shape, dice);
    ASSERT_TRUE(check_region(region, shape));
    const auto elements = elements_of(region, shape);
    ASSERT_EQ(elements_of_runs(region, shape), elements);
    ASSERT_EQ(element_count(region, shape), elements.size());
    ASSERT_EQ(elements_of_runs(canonical(region, shape), shape), elements);
  }
}

TEST(Region, TheCommonRunsOfRandomPairsAreTheirCommonElementsAtTheirPlaces) {
  std::mt19937 dice(2);
  for (int i = 0; i < 3000; ++i) {
    const Shape shape = random_shape(dice);
    const Region a = random_region(shape, dice), b = random_region(shape, dice);
    const auto in_a = elements_of(a, shape), in_b = elements_of(b, shape);
    std::vector<uint64_t> expected, found;
    std::ranges::set_intersection(in_a, in_b, std::back_inserter(expected));
    for_each_common_run(a, b, shape, [&](const CommonRun& run) {
      for (uint64_t k = 0; k < run.element_count; ++k) {
        ASSERT_EQ(in_a[run.position_a + k], in_b[run.position_b + k]);
        found.push_back(in_a[run.position_a + k]);
      }
    });
    ASSERT_EQ(found, expected);
  }
}

TEST(Region, CanonicalFormsAreEqualExactlyWhereTheElementsAre) {
  std::mt19937 dice(3);
  const Shape shape{2, 3, 2};
  for (int i = 0; i < 3000; ++i) {
    const Region a = random_region(shape, dice), b = random_region(shape, dice);
    const bool same_elements = elements_of(a, shape) == elements_of(b, shape);
    const bool both_empty = element_count(a, shape) == 0 && element_count(b, shape) == 0;
    if (!both_empty) {
      ASSERT_EQ(canonical(a, shape) == canonical(b, shape), same_elements);
    }
  }
}

TEST(Region, RowsAndColumnsOfAMatrixAreSlices) {
  const Shape shape{4, 6};
  EXPECT_EQ(canonical(Region::slice(shape, 0, 1, 3), shape), Region::flat(6, 18));
  const Region columns = Region::slice(shape, 1, 2, 4);
  EXPECT_EQ(elements_of_runs(columns, shape), (std::vector<uint64_t>{2, 3, 8, 9, 14, 15, 20, 21}));
  EXPECT_EQ(shape_of(columns, shape), (Shape{4, 2}));
  EXPECT_EQ(to_string(columns, shape), "[0:4,2:4]");
  EXPECT_EQ(to_string(Region::flat(3, 9), shape), "[flat 3:9]");
  EXPECT_EQ(to_string(Region::flat(0, 24), shape), "");
}

TEST(Region, AScalarHasOneElement) {
  EXPECT_EQ(*count_elements({}), 1U);
  EXPECT_EQ(elements_of_runs(Region::all(), {}), std::vector<uint64_t>{0});
  EXPECT_EQ(elements_of_runs(Region::box({}), {}), std::vector<uint64_t>{0});
  EXPECT_TRUE(check_cover({Region::all()}, {}));
}

TEST(Region, TooManyElementsOrDimensionsAreRefusedAlsoWhereOneSideIsZero) {
  EXPECT_FALSE(count_elements({uint64_t{1} << 40, uint64_t{1} << 40}));
  EXPECT_FALSE(count_elements({uint64_t{1} << 40, 0, uint64_t{1} << 40}));
  EXPECT_FALSE(count_elements(Shape(kDimensionCountMax + 1, 1)));
  EXPECT_EQ(*count_elements({7, 0, 3}), 0U);
}

TEST(Region, RegionsThatReachOutsideAreRefused) {
  const Shape shape{3, 4};
  EXPECT_FALSE(check_region(Region::flat(0, 13), shape));
  EXPECT_FALSE(check_region(Region::flat(5, 4), shape));
  EXPECT_FALSE(check_region(Region::box({{0, 4}, {0, 4}}), shape));
  EXPECT_FALSE(check_region(Region::box({{0, 3}}), shape));
  EXPECT_TRUE(check_region(Region::box({{3, 3}, {0, 4}}), shape));
}

TEST(Region, JsonGivesTheRegionBackAndRefusesNonsense) {
  for (const Region& region :
       {Region::all(), Region::flat(2, 9), Region::box({{0, 1}, {2, 5}}), Region::box({})})
    EXPECT_EQ(*region_from_json(to_json(region), "x"), region);
  for (const char* text : {R"({"flat": [3, 1]})", R"({"flat": [-1, 1]})", R"({"flat": 4})",
                           R"({"box": 1})", R"({"box": [[0, 1, 2]]})", R"({"box": [["a", 1]]})"})
    EXPECT_FALSE(region_from_json(*parse_json(text, "text"), "x")) << text;
}

TEST(Cover, AGridOfBoxesInTwoDimensionsCovers) {
  const Shape shape{6, 6};
  std::vector<Region> grid;
  for (uint64_t row = 0; row < 6; row += 2)
    for (uint64_t column = 0; column < 6; column += 3)
      grid.push_back(Region::box({{row, row + 2}, {column, column + 3}}));
  EXPECT_TRUE(check_cover(grid, shape));
  auto with_hole = grid;
  with_hole.erase(with_hole.begin() + 3);
  const auto hole = check_cover(with_hole, shape);
  ASSERT_FALSE(hole);
  EXPECT_NE(hole.error().message.find("6 of its 36 elements are in no chunk"), std::string::npos)
      << hole.error().message;
  auto twice = with_hole;
  twice.push_back(Region::box({{2, 4}, {2, 5}}));  // the count fits, the places do not
  EXPECT_FALSE(check_cover(twice, shape));
}

TEST(Cover, FlatPiecesAndBoxesMayBeMixed) {
  const Shape shape{4, 4};
  EXPECT_TRUE(check_cover(
      {Region::flat(0, 8), Region::box({{2, 4}, {0, 2}}), Region::box({{2, 4}, {2, 4}})}, shape));
  EXPECT_FALSE(check_cover(
      {Region::flat(0, 9), Region::box({{2, 4}, {0, 2}}), Region::box({{2, 4}, {2, 4}})}, shape));
}

TEST(Cover, RandomPartitionsCoverAndALostOrGrownPieceIsSeen) {
  std::mt19937 dice(5);
  for (int i = 0; i < 500; ++i) {
    const uint64_t count = 1 + dice() % 40;
    std::vector<Region> pieces;
    for (uint64_t at = 0; at < count;) {
      const uint64_t end = std::min<uint64_t>(count, at + 1 + dice() % 7);
      pieces.push_back(Region::flat(at, end));
      at = end;
    }
    std::ranges::shuffle(pieces, dice);
    ASSERT_TRUE(check_cover(pieces, {count}));
    auto lost = pieces;
    lost.erase(lost.begin() + static_cast<ptrdiff_t>(dice() % lost.size()));
    ASSERT_FALSE(check_cover(lost, {count}));
    auto grown = pieces;
    Region& piece = grown[dice() % grown.size()];
    if (piece.sides[0].end < count) {
      ++piece.sides[0].end;
      ASSERT_FALSE(check_cover(grown, {count}));
    }
  }
}

TEST(Cover, TensorsWithoutElementsNeedNoChunk) {
  EXPECT_TRUE(check_cover({}, {3, 0}));
  EXPECT_TRUE(check_cover({Region::all()}, {3, 0}));
  EXPECT_FALSE(check_cover({}, {3}));
}

}  // namespace
}  // namespace yard::checkpoint
