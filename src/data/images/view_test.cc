#include "images/view.h"

#include <gtest/gtest.h>

#include <cmath>
#include <utility>

#include "base/random.h"

namespace yard::images {
namespace {

void expect_inside(const View& view, Size picture, Size output) {
  EXPECT_GE(view.part_x, 0);
  EXPECT_GE(view.part_y, 0);
  EXPECT_GE(view.part_width, 1);
  EXPECT_GE(view.part_height, 1);
  EXPECT_LE(view.part_x + view.part_width, picture.width);
  EXPECT_LE(view.part_y + view.part_height, picture.height);
  EXPECT_GE(view.left, 0);
  EXPECT_GE(view.top, 0);
  EXPECT_LE(view.left + output.width, view.scaled_width);
  EXPECT_LE(view.top + output.height, view.scaled_height);
  EXPECT_EQ(view.width, output.width);
  EXPECT_EQ(view.height, output.height);
}

TEST(View, CoveringASquareIsResizeOfTheShorterSideAndCentreCrop) {
  const View view = covering_view({640, 427}, {256, 256});
  EXPECT_EQ(view.scaled_width, 256 * 640 / 427);
  EXPECT_EQ(view.scaled_height, 256);
  EXPECT_EQ(view.left, 64);  // round(63.5), half to even
  EXPECT_EQ(view.top, 0);
  const View tall = covering_view({427, 640}, {256, 256}, 0.5, 1.0);
  EXPECT_EQ(tall.scaled_width, 256);
  EXPECT_EQ(tall.top, tall.scaled_height - 256);
}

TEST(View, OfAnySizesLiesInThePicture) {
  const int sides[] = {1, 2, 3, 31, 64, 333, 5000, 65535};
  uint64_t seed = 0;
  for (const int width : sides) {
    for (const int height : sides) {
      for (const Size output : {Size{1, 1}, Size{64, 64}, Size{300, 17}, Size{17, 300}}) {
        const Size picture = {width, height};
        ++seed;
        expect_inside(stretched_view(picture, output), picture, output);
        expect_inside(covering_view(picture, output, 1.0, 1.0), picture, output);
        expect_inside(random_view(picture, output, 0.5, seed), picture, output);
        expect_inside(random_resized_view(picture, output, {}, seed), picture, output);
      }
    }
  }
}

TEST(View, RandomIsAFunctionOfTheSeedAlone) {
  const Size picture = {640, 480}, output = {224, 224};
  EXPECT_EQ(random_view(picture, output, 0.5, 9), random_view(picture, output, 0.5, 9));
  EXPECT_EQ(random_resized_view(picture, output, {}, 9),
            random_resized_view(picture, output, {}, 9));
  int different = 0;
  for (uint64_t seed = 0; seed < 20; ++seed)
    different += random_resized_view(picture, output, {}, seed) !=
                 random_resized_view(picture, output, {}, seed + 1);
  EXPECT_EQ(different, 20);
}

TEST(View, RandomResizedKeepsItsRule) {
  const Size picture = {1000, 800};
  const RandomRule rule = {.area_min = 0.25, .area_max = 0.5, .aspect_min = 0.8, .aspect_max = 1.2};
  double area_total = 0;
  int flip_count = 0;
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    const View view = random_resized_view(picture, {64, 64}, rule, seed);
    const double area = double(view.part_width * view.part_height) / (1000 * 800);
    const double aspect = double(view.part_width) / double(view.part_height);
    EXPECT_GT(area, 0.245);
    EXPECT_LT(area, 0.505);
    EXPECT_GT(aspect, 0.79);
    EXPECT_LT(aspect, 1.21);
    area_total += area;
    flip_count += view.flip ? 1 : 0;
  }
  EXPECT_NEAR(area_total / 1000, 0.375, 0.01);  // uniform: three standard errors are 0.007
  EXPECT_NEAR(flip_count, 500, 60);
}

TEST(View, FlipProbabilitiesOfZeroAndOneAreCertain) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    EXPECT_FALSE(random_view({9, 9}, {4, 4}, 0, seed).flip);
    EXPECT_TRUE(random_view({9, 9}, {4, 4}, 1, seed).flip);
  }
}

TEST(View, RandomResizedOfALineTakesItsMiddle) {
  const View view = random_resized_view({10000, 10}, {64, 64}, {}, 3);
  EXPECT_EQ(view.part_height, 10);
  EXPECT_EQ(view.part_width, 13);  // aspect 4/3
  EXPECT_EQ(view.part_x, (10000 - 13) / 2);
}

}  // namespace
}  // namespace yard::images
