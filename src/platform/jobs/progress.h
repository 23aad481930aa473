// Progress: how far a job is and how fast it goes, out of its heartbeats. Pure.
#pragma once

#include <cstdint>
#include <deque>
#include <limits>
#include <string>

#include "jobs/heartbeat.h"

namespace yard::jobs {

struct ProgressSnapshot {
  std::string stage;
  int64_t stage_index = 0;  // 0-based
  int64_t stage_count = 0;
  int64_t step = 0;   // in the stage
  int64_t steps = 0;  // of the stage
  int64_t global_step = 0;
  int64_t global_steps = 0;
  double loss = std::numeric_limits<double>::quiet_NaN();
  double steps_per_s = 0;      // 0: not known yet
  double data_wait_ratio = 0;  // of the steps' time, over the ranks
  double compute_ratio = 0;    // likewise
  double eta_s = 0;            // 0: not known
  bool any() const { return global_step > 0; }
};

// Not thread-safe. Rates are over the last steps, at most 64.
class Progress {
 public:
  void add(int rank, const Heartbeat& heartbeat);
  ProgressSnapshot snapshot() const;

 private:
  struct StepTime {
    double t;
    int64_t global_step;
  };
  struct StepShare {
    double step_s, data_wait_s, compute_s;
  };
  ProgressSnapshot known_;
  std::deque<StepTime> times_;    // of rank 0
  std::deque<StepShare> shares_;  // of all ranks
};

// "stage 1/2 64px  step 120/900  14.2 it/s  loss 0.3211  data 1.2 %  compute 97.0 %  ETA 54s"
std::string format_progress(const ProgressSnapshot& snapshot);

}  // namespace yard::jobs
