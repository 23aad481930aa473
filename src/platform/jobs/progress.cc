#include "jobs/progress.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>

#include "base/units.h"

namespace yard::jobs {
namespace {

constexpr size_t kTimesMax = 64;
constexpr size_t kSharesMax = 256;

template <typename T>
void push_bounded(std::deque<T>& queue, T item, size_t count_max) {
  queue.push_back(item);
  if (queue.size() > count_max) queue.pop_front();
}

double ratio(double part, double whole) {
  return whole > 0 ? std::min(1.0, part / whole) : 0.0;
}

}  // namespace

void Progress::add(int rank, const Heartbeat& heartbeat) {
  switch (heartbeat.event) {
    case HeartbeatEvent::kStart:
      // Another attempt: the time in between is no step's.
      if (rank == 0) times_.clear();
      return;
    case HeartbeatEvent::kStage:
      if (rank != 0) return;
      known_.stage = heartbeat.stage;
      known_.stage_index = heartbeat.stage_index;
      known_.stage_count = heartbeat.stage_count;
      known_.steps = heartbeat.steps;
      // Stages differ in resolution, and so in pace.
      times_.clear();
      shares_.clear();
      return;
    case HeartbeatEvent::kStep:
      push_bounded(shares_, {heartbeat.step_s, heartbeat.data_wait_s, heartbeat.compute_s},
                   kSharesMax);
      if (rank != 0) return;
      known_.stage = heartbeat.stage;
      known_.step = heartbeat.step;
      known_.global_step = heartbeat.global_step;
      known_.global_steps = heartbeat.global_steps;
      known_.loss = heartbeat.loss;
      push_bounded(times_, {heartbeat.t, heartbeat.global_step}, kTimesMax);
      return;
    default:
      return;
  }
}

ProgressSnapshot Progress::snapshot() const {
  ProgressSnapshot snapshot = known_;
  StepShare sum{0, 0, 0};
  for (const auto& share : shares_) {
    sum.step_s += share.step_s;
    sum.data_wait_s += share.data_wait_s;
    sum.compute_s += share.compute_s;
  }
  snapshot.data_wait_ratio = ratio(sum.data_wait_s, sum.step_s);
  snapshot.compute_ratio = ratio(sum.compute_s, sum.step_s);
  if (times_.size() < 2) return snapshot;
  const double window_s = times_.back().t - times_.front().t;
  const auto window_steps = times_.back().global_step - times_.front().global_step;
  if (!(window_s > 0) || window_steps <= 0) return snapshot;
  snapshot.steps_per_s = static_cast<double>(window_steps) / window_s;
  const auto left = std::max<int64_t>(0, snapshot.global_steps - snapshot.global_step);
  snapshot.eta_s = static_cast<double>(left) / snapshot.steps_per_s;
  return snapshot;
}

std::string format_progress(const ProgressSnapshot& s) {
  if (!s.any()) return s.stage.empty() ? "starting" : fmt::format("stage {}  starting", s.stage);
  std::string line;
  if (s.stage_count > 0) {
    line += fmt::format("stage {}/{} {}  ", s.stage_index + 1, s.stage_count, s.stage);
  } else if (!s.stage.empty()) {
    line += fmt::format("stage {}  ", s.stage);
  }
  line += fmt::format("step {}/{}", s.global_step, s.global_steps);
  if (s.steps_per_s > 0) line += fmt::format("  {:.3g} it/s", s.steps_per_s);
  if (std::isfinite(s.loss)) line += fmt::format("  loss {:.4f}", s.loss);
  line += fmt::format("  data wait {:.1f} %  compute {:.1f} %", 100 * s.data_wait_ratio,
                      100 * s.compute_ratio);
  if (s.eta_s > 0) {
    const auto eta = std::chrono::duration_cast<std::chrono::nanoseconds>(
        std::chrono::duration<double>(std::min(s.eta_s, 1e9)));
    line += fmt::format("  ETA {}", format_duration(eta));
  }
  return line;
}

}  // namespace yard::jobs
