#include "jobs/progress.h"

#include <gtest/gtest.h>

namespace yard::jobs {
namespace {

Heartbeat step(double t, int64_t global_step) {
  Heartbeat h;
  h.t = t;
  h.event = HeartbeatEvent::kStep;
  h.stage = "32px";
  h.step = global_step;
  h.global_step = global_step;
  h.global_steps = 100;
  h.loss = 0.25;
  h.step_s = 0.5;
  h.compute_s = 0.4;
  h.data_wait_s = 0.05;
  return h;
}

TEST(ProgressTest, RateSharesAndEtaComeFromTheLastSteps) {
  Progress progress;
  for (int i = 1; i <= 11; ++i) {
    progress.add(0, step(100 + i * 0.5, i));
    progress.add(1, step(100 + i * 0.5, i));
  }
  const auto s = progress.snapshot();
  EXPECT_EQ(s.global_step, 11);
  EXPECT_DOUBLE_EQ(s.steps_per_s, 2);
  EXPECT_DOUBLE_EQ(s.eta_s, 44.5);
  EXPECT_NEAR(s.data_wait_ratio, 0.1, 1e-12);
  EXPECT_NEAR(s.compute_ratio, 0.8, 1e-12);
  EXPECT_EQ(format_progress(s),
            "stage 32px  step 11/100  2 it/s  loss 0.2500  data wait 10.0 %  compute 80.0 %"
            "  ETA 44.5s");
}

TEST(ProgressTest, ARestartIsNotASlowStep) {
  Progress progress;
  for (int i = 1; i <= 5; ++i) progress.add(0, step(i * 0.5, i));
  Heartbeat start;
  start.event = HeartbeatEvent::kStart;
  progress.add(0, start);
  progress.add(0, step(500, 4));
  EXPECT_EQ(progress.snapshot().steps_per_s, 0);
  progress.add(0, step(500.25, 5));
  EXPECT_DOUBLE_EQ(progress.snapshot().steps_per_s, 4);
}

TEST(ProgressTest, OnlyRankZeroTellsHowFarWeAre) {
  Progress progress;
  progress.add(1, step(1, 9));
  EXPECT_FALSE(progress.snapshot().any());
  EXPECT_EQ(format_progress(progress.snapshot()), "starting");
}

TEST(ProgressTest, AStageIsNamedBeforeItsFirstStep) {
  Progress progress;
  Heartbeat stage;
  stage.event = HeartbeatEvent::kStage;
  stage.stage = "64px";
  progress.add(0, stage);
  EXPECT_EQ(format_progress(progress.snapshot()), "stage 64px  starting");
}

}  // namespace
}  // namespace yard::jobs
