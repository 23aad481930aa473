#include "loop/micro_batch.h"

#include <ATen/ops/empty.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "base/file.h"
#include "loop/pace.h"
#include "loop/peak_memory.h"

namespace yard::loop {
namespace {

TEST(MicroBatchTest, TakesWhatFitsAndSharesItEvenly) {
  constexpr MemoryPeaks kPeaks{.one_bytes = 300, .two_bytes = 400};  // 200 and 100 a sample
  EXPECT_EQ(choose_micro_batch(kPeaks, 32, 10'000), 32);
  EXPECT_EQ(choose_micro_batch(kPeaks, 32, 2'200), 16) << "20 would fit: two rounds of 16";
  EXPECT_EQ(choose_micro_batch(kPeaks, 32, 400), 2);
  EXPECT_EQ(choose_micro_batch(kPeaks, 32, 399), 1);
  EXPECT_EQ(choose_micro_batch(kPeaks, 32, 10), 1) << "the first step will tell";
  EXPECT_EQ(choose_micro_batch({300, 300}, 8, 1'000), 8);
  EXPECT_EQ(choose_micro_batch({300, 200}, 8, 301), 2) << "a measure with noise";
}

class MicroBatchNotesTest : public testing::Test {
 protected:
  void SetUp() override {
    dir_ = testing::TempDir() + "yard_micro_batch_test." + std::to_string(getpid());
    std::filesystem::create_directories(dir_);
    recipe_.stages = {{.name = "a", .batch = 8, .micro_batch = 8},
                      {.name = "b", .batch = 8, .micro_batch = StageRecipe::kAutoMicroBatch}};
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  Status take(Recipe& recipe) {
    auto group = collective::single_rank_group();
    return take_noted_micro_batches(recipe, dir_, *group);
  }

  std::string dir_;
  Recipe recipe_;
};

TEST_F(MicroBatchNotesTest, ANoteIsTakenByARunThatWasAskedForTheSame) {
  Recipe first = recipe_;
  ASSERT_TRUE(take(first));
  EXPECT_EQ(first.stages[0].micro_batch, 8);
  first.stages[0].micro_batch = 4;
  first.stages[1].micro_batch = 2;
  ASSERT_TRUE(note_micro_batch(dir_, first.stages[0], 1));
  ASSERT_TRUE(note_micro_batch(dir_, first.stages[1], 1));
  Recipe again = recipe_;
  ASSERT_TRUE(take(again));
  EXPECT_EQ(again.stages[0].micro_batch, 4);
  EXPECT_EQ(again.stages[0].asked_micro_batch, 8);
  EXPECT_EQ(again.stages[1].micro_batch, 2);
  Recipe other = recipe_;
  other.stages[0].micro_batch = 6;
  ASSERT_TRUE(take(other));
  EXPECT_EQ(other.stages[0].micro_batch, 6);
}

TEST_F(MicroBatchNotesTest, ANoteOfOtherRanksIsLeftAlone) {
  Recipe first = recipe_;
  ASSERT_TRUE(take(first));
  first.stages[0].micro_batch = 4;
  ASSERT_TRUE(note_micro_batch(dir_, first.stages[0], 2));
  Recipe again = recipe_;
  ASSERT_TRUE(take(again));
  EXPECT_EQ(again.stages[0].micro_batch, 8);
}

TEST_F(MicroBatchNotesTest, WhatIsNoNoteIsRefused) {
  for (const char* text :
       {"[]", "{\"a\": 3}", "{\"a\": {\"asked\": 8, \"ranks\": 1, \"micro_batch\": 0}}"}) {
    ASSERT_TRUE(write_file_atomic(dir_ + "/micro_batches.json", text));
    Recipe recipe = recipe_;
    EXPECT_FALSE(take(recipe)) << text;
  }
}

TEST(PeakMemoryTest, IsTheMostThatWasHeldAtOnce) {
  const at::Tensor before = at::empty({1 << 20});
  const PeakMemory meter;
  {
    const at::Tensor a = at::empty({1000});
    const at::Tensor b = at::empty({2000});
  }
  const at::Tensor c = at::empty({2500});
  EXPECT_GE(meter.peak_bytes(), 12'000u);
  EXPECT_LT(meter.peak_bytes(), 16'000u);
}

TEST(PaceTest, IsOfTheLastSteps) {
  Pace pace(0);
  for (int i = 0; i < 100; ++i)
    pace.add({.step_s = i < 50 ? 9.0 : 0.5,
              .compute_s = 0.4,
              .data_wait_s = 0.05,
              .rank_compute_s = {0.3, 0.2}},
             8);
  const Pace::Report report = pace.report(120);
  EXPECT_NEAR(report.steps_per_s, 2, 1e-9);
  EXPECT_NEAR(report.samples_per_s, 16, 1e-9);
  EXPECT_NEAR(report.data_wait_share, 0.1, 1e-9);
  EXPECT_NEAR(report.utilisation, 0.7, 1e-9) << "rank 1 computes 0.1 s less than rank 0's 0.4";
  EXPECT_NEAR(report.left_s, 60, 1e-9);
  EXPECT_PRED_FORMAT2(testing::IsSubstring, "2 it/s  16 samples/s  70 % busy  data 10.0 %  1m00s",
                      report.to_string());
}

}  // namespace
}  // namespace yard::loop
