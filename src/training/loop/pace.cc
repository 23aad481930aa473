#include "loop/pace.h"

#include <fmt/format.h>

#include <chrono>
#include <numeric>

#include "base/units.h"

namespace yard::loop {

void Pace::add(const StepReport& step, int64_t sample_count) {
  const std::vector<double>& ranks = step.rank_compute_s;
  double busy = step.compute_s;
  if (!ranks.empty()) {
    // What is not told by rank, the optimiser's part, takes every rank as long.
    const double mean =
        std::accumulate(ranks.begin(), ranks.end(), 0.0) / static_cast<double>(ranks.size());
    busy += mean - ranks[rank_];
  }
  steps_.push_back({step.step_s, busy, step.data_wait_s, sample_count});
  if (steps_.size() > kWindow) steps_.pop_front();
}

Pace::Report Pace::report(int64_t steps_left) const {
  YARD_CHECK(!steps_.empty());
  Step sum;
  for (const Step& step : steps_) {
    sum.seconds += step.seconds;
    sum.busy_seconds += step.busy_seconds;
    sum.wait_seconds += step.wait_seconds;
    sum.sample_count += step.sample_count;
  }
  if (sum.seconds <= 0) return {};
  Report report{.steps_per_s = static_cast<double>(steps_.size()) / sum.seconds,
                .samples_per_s = static_cast<double>(sum.sample_count) / sum.seconds,
                .utilisation = sum.busy_seconds / sum.seconds,
                .data_wait_share = sum.wait_seconds / sum.seconds};
  report.left_s = static_cast<double>(steps_left) / report.steps_per_s;
  return report;
}

std::string Pace::Report::to_string() const {
  const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::duration<double>(std::min(left_s, 1e9)));
  return fmt::format("{:.3g} it/s  {:.3g} samples/s  {:.0f} % busy  data {:.1f} %  {} left",
                     steps_per_s, samples_per_s, 100 * utilisation, 100 * data_wait_share,
                     format_duration(left));
}

}  // namespace yard::loop
