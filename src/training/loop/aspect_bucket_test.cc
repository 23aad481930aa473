// Pictures of many shapes through a stage with aspect buckets.
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>

#include "images/picture.h"
#include "loop/samples.h"
#include "loop/testing/tiny_run.h"
#include "shards/shard_writer.h"
#include "storage/directory_store.h"

namespace yard::loop {
namespace {

constexpr int64_t kHeldOut = 4;
constexpr int64_t kBatch = 4;
const std::vector<PictureSide> kShapes = {{48, 16}, {40, 20}, {36, 24}, {30, 30},
                                          {24, 36}, {20, 40}, {16, 50}, {33, 31}};
const std::vector<PictureSide> kBuckets = {{24, 12}, {16, 16}, {12, 24}};

// Red grows from left to right, green from top to bottom: what was cut and stretched can be told.
images::Picture picture_of(const PictureSide& side) {
  images::Picture picture{static_cast<int>(side.width), static_cast<int>(side.height), {}};
  for (int64_t y = 0; y < side.height; ++y)
    for (int64_t x = 0; x < side.width; ++x)
      for (const int64_t value : {255 * (2 * x + 1) / (2 * side.width),
                                  255 * (2 * y + 1) / (2 * side.height), int64_t{128}})
        picture.pixels.push_back(static_cast<uint8_t>(value));
  return picture;
}

void write_pictures(const std::string& folder, int count) {
  std::filesystem::create_directories(folder);
  auto store = *storage::DirectoryStore::open(folder);
  auto writer = *shards::ShardWriter::create(*store, {});
  const std::string caption = "red";
  for (int i = 0; i < count; ++i) {
    const auto png = *images::encode_png(picture_of(kShapes[static_cast<size_t>(i) % 8]));
    const std::vector<shards::NewMember> members = {{"png", png},
                                                    {"txt", std::as_bytes(std::span(caption))}};
    ASSERT_TRUE(writer.add("s" + std::to_string(i), members));
  }
  ASSERT_TRUE(writer.finish());
}

double ratio_of(const PictureSide& side) {
  return static_cast<double>(side.width) / static_cast<double>(side.height);
}

PictureSide nearest_bucket(const PictureSide& side) {
  return *std::ranges::min_element(kBuckets, {}, [&](const PictureSide& bucket) {
    return std::abs(std::log(ratio_of(bucket) / ratio_of(side)));
  });
}

// Share of the picture's width and height that is left once it covers `to` and is cut.
std::pair<double, double> visible_share(const PictureSide& from, const PictureSide& to) {
  const double wider = ratio_of(from) / ratio_of(to);
  return {std::min(1.0, 1 / wider), std::min(1.0, wider)};
}

// [3, H, W] in [-1, 1]: from the middle, neither stretched nor mirrored.
void expect_cut_of(const at::Tensor& picture, const PictureSide& from, const PictureSide& to) {
  const auto [width, height] = visible_share(from, to);
  const auto first = [&](double share, int64_t pixels) {
    return 2 * ((1 - share) / 2 + share / static_cast<double>(2 * pixels)) - 1;
  };
  const double left = picture[0].select(1, 0).mean().item<double>();
  const double right = picture[0].select(1, to.width - 1).mean().item<double>();
  const double top = picture[1].select(0, 0).mean().item<double>();
  EXPECT_NEAR(left, first(width, to.width), 0.08) << from.width << "x" << from.height;
  EXPECT_NEAR(right, -first(width, to.width), 0.08) << from.width << "x" << from.height;
  EXPECT_NEAR(top, first(height, to.height), 0.08) << from.width << "x" << from.height;
}

class AspectBucketTest : public TrainerTest {
 protected:
  void SetUp() override {
    TrainerTest::SetUp();
    write_pictures(path("pictures"), 48 + kHeldOut);
  }
  std::vector<std::string> overrides() const {
    return {"data={shards: " + path("pictures") + ", held_out: 4, cache: 0}",
            "sampling.prompts=[]",
            "checkpoint.every_steps=0",
            "stages.pixels.steps=1",
            "stages.cached.steps=1",
            "stages.online.steps=12",
            "stages.online.batch=4",
            "stages.online.aspect_buckets=[24x12, 16x16, 12x24]"};
  }
};

TEST_F(AspectBucketTest, EachBatchIsOfOneSizeAndEachPictureOfTheNearestUnstretched) {
  DataRecipe data;
  data.shards = path("pictures");
  data.held_out = kHeldOut;
  data.cache_bytes = 0;
  const auto samples = *Samples::open(data, 5);
  StageRecipe stage{.resolution = 16, .batch = kBatch};
  stage.aspect_buckets = kBuckets;
  auto source = samples->steps(stage, 7, {}, {}, {.sizes = true});
  ASSERT_TRUE(source) << source.error().message;
  const auto sides = *samples->picture_sides(samples->shards().front());
  std::map<int64_t, int> batches_by_width;
  for (int step = 0; step < 10; ++step) {
    auto data_of_step = (*source)->next();
    ASSERT_TRUE(data_of_step) << data_of_step.error().message;
    const at::Tensor& pictures = data_of_step->pictures;
    const PictureSide size{pictures.size(3), pictures.size(2)};
    ++batches_by_width[size.width];
    ASSERT_EQ(pictures.size(0), kBatch);
    for (int64_t i = 0; i < kBatch; ++i) {
      const PictureSide& original = sides.at(data_of_step->ids[static_cast<size_t>(i)]);
      EXPECT_EQ(nearest_bucket(original), size) << original.width << "x" << original.height;
      expect_cut_of(pictures[i], original, size);
      EXPECT_EQ(data_of_step->condition.sizes[i][0].item<double>(), original.height);
      EXPECT_EQ(data_of_step->condition.sizes[i][5].item<double>(), size.width);
    }
  }
  EXPECT_EQ(batches_by_width.size(), kBuckets.size()) << "every bucket has its batches";
}

TEST_F(AspectBucketTest, TrainingOnThemIsTheSameOnTwoRanksAndTakenUpBitForBit) {
  const Status status = run("one", overrides());
  ASSERT_TRUE(status) << status.error().message;
  EXPECT_EQ(losses("one").size(), 14u);
  EXPECT_EQ(run_in_pieces(9, "cut", overrides()), 2);
  EXPECT_EQ(losses("cut"), losses("one"));
  EXPECT_TRUE(weights("cut") == weights("one"));
  ASSERT_TRUE(run_on_ranks(2, "two", overrides()));
  expect_near("two", "one", 1e-4);
}

}  // namespace
}  // namespace yard::loop
