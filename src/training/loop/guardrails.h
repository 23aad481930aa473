// Guardrails: what tells a run that goes well from one that does not. Pure; no I/O.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "loop/recipe.h"

namespace yard::loop {

// The running mean of a stage's losses; part of a checkpoint, so that a resumed run decides as the
// uninterrupted one does.
struct LossMean {
  double mean = 0;
  int64_t count = 0;
  int64_t high_count = 0;  // losses in a row that were spikes
};

Json to_json(const LossMean& mean);
// `json` null: a mean of nothing. kInvalidArgument: not one; `what` names the document.
Result<LossMean> loss_mean_from(const Json& json, const std::string& what);

// Takes up a step's loss. A loss over recipe.spike_factor times the mean does not count in it.
// True: as many in a row as recipe.spike_steps; the row begins anew then.
bool note_loss(const GuardRecipe& recipe, double loss, LossMean& state);

struct SlowRank {
  int rank = 0;
  double factor = 0;  // its computing time over the median of all
};

// Computing times of all ranks over a window of steps. Not thread-safe.
class RankTimes {
 public:
  static constexpr int64_t kWindow = 50;

  // `seconds`: of one step, by rank. At the end of a window the slowest rank, where it takes more
  // than `factor` times the median and at least 2 ms more a step. factor 0: never.
  std::optional<SlowRank> add(std::span<const double> seconds, double factor);

 private:
  std::vector<double> sums_;
  int64_t count_ = 0;
};

// What steps waited for data in a window, and why.
struct DataWait {
  double share = 0;  // of the steps' time
  std::string why;   // "decoding takes 31 ms a sample in 1 thread; ..."
};

// What the loader has done so far; see telemetry/metric_names.h.
struct LoaderTotals {
  double samples = 0;
  double decode_seconds = 0;  // over all threads
  double read_bytes = 0;
};

// Not thread-safe.
class DataWaitWatch {
 public:
  static constexpr int64_t kWindow = 50;

  explicit DataWaitWatch(int64_t thread_count) : thread_count_(thread_count) {}
  // At the end of a window what was waited for, where it was more than `share` of the time.
  std::optional<DataWait> add(double step_s, double wait_s, double share,
                              const LoaderTotals& totals);

 private:
  std::string explain(const LoaderTotals& totals) const;

  const int64_t thread_count_;
  int64_t count_ = 0;
  double step_s_ = 0, wait_s_ = 0;
  LoaderTotals begin_;
};

}  // namespace yard::loop
