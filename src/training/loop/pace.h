// Pace: how fast a run goes and when it will be done. Pure.
#pragma once

#include <cstdint>
#include <deque>
#include <string>

#include "loop/stage_step.h"

namespace yard::loop {

// Over the last steps. Not thread-safe.
class Pace {
 public:
  static constexpr size_t kWindow = 50;

  struct Report {
    double steps_per_s = 0;
    double samples_per_s = 0;
    double utilisation = 0;      // share of all ranks' time in steps that they computed
    double data_wait_share = 0;  // of this rank's time
    double left_s = 0;           // until `steps_left` more are done
    // "12.3 it/s  98 samples/s  97 % busy  data 0.4 %  1h02m left".
    std::string to_string() const;
  };

  explicit Pace(int rank) : rank_(static_cast<size_t>(rank)) {}
  void add(const StepReport& step, int64_t sample_count);
  // Contract: a step was added.
  Report report(int64_t steps_left) const;

 private:
  struct Step {
    double seconds = 0, busy_seconds = 0, wait_seconds = 0;
    int64_t sample_count = 0;
  };

  const size_t rank_;
  std::deque<Step> steps_;
};

}  // namespace yard::loop
