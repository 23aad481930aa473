#include "loop/guardrails.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/units.h"

namespace yard::loop {
namespace {

// Weight of a new loss once so many have been seen.
constexpr double kNewestShare = 0.02;
// Less is the clock's and the scheduler's noise.
constexpr double kSlowerSecondsMin = 2e-3;

double median_of(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

}  // namespace

Json to_json(const LossMean& mean) {
  return {{"mean", mean.mean}, {"count", mean.count}, {"high_count", mean.high_count}};
}

Result<LossMean> loss_mean_from(const Json& json, const std::string& what) {
  LossMean out;
  if (json.is_null()) return out;
  YARD_ASSIGN(out.mean, json_field<double>(json, "mean", what));
  YARD_ASSIGN(out.count, json_field<int64_t>(json, "count", what));
  YARD_ASSIGN(out.high_count, json_field<int64_t>(json, "high_count", what));
  return out;
}

bool note_loss(const GuardRecipe& recipe, double loss, LossMean& state) {
  const bool watched = recipe.spike_factor > 0 && state.count >= recipe.spike_warmup;
  if (watched && loss > recipe.spike_factor * state.mean) {
    if (++state.high_count < recipe.spike_steps) return false;
    state.high_count = 0;
    return true;
  }
  state.high_count = 0;
  ++state.count;
  const double share = std::max(kNewestShare, 1 / static_cast<double>(state.count));
  state.mean += share * (loss - state.mean);
  return false;
}

std::optional<SlowRank> RankTimes::add(std::span<const double> seconds, double factor) {
  sums_.resize(seconds.size());
  for (size_t r = 0; r < seconds.size(); ++r) sums_[r] += seconds[r];
  if (++count_ < kWindow) return std::nullopt;
  const std::vector<double> sums = std::move(sums_);
  sums_.clear();
  count_ = 0;
  const auto slowest = std::max_element(sums.begin(), sums.end());
  const double median = median_of(sums);
  if (factor == 0 || sums.size() < 2 || *slowest <= factor * median ||
      *slowest - median < kSlowerSecondsMin * kWindow)
    return std::nullopt;
  return SlowRank{static_cast<int>(slowest - sums.begin()), *slowest / median};
}

std::optional<DataWait> DataWaitWatch::add(double step_s, double wait_s, double share,
                                           const LoaderTotals& totals) {
  step_s_ += step_s;
  wait_s_ += wait_s;
  if (++count_ < kWindow) return std::nullopt;
  std::optional<DataWait> out;
  if (share > 0 && step_s_ > 0 && wait_s_ > share * step_s_)
    out = DataWait{wait_s_ / step_s_, explain(totals)};
  count_ = 0;
  step_s_ = wait_s_ = 0;
  begin_ = totals;
  return out;
}

std::string DataWaitWatch::explain(const LoaderTotals& totals) const {
  const double samples = totals.samples - begin_.samples;
  if (samples <= 0)
    return "no sample was read from the shards meanwhile: the batch is put together too slowly";
  const double decode_s = totals.decode_seconds - begin_.decode_seconds;
  const double busy = decode_s / (step_s_ * static_cast<double>(thread_count_));
  const std::string facts = fmt::format(
      "{:.0f} samples were read ({} a second) and decoded in {:.1f} ms each by {} threads, busy "
      "for {:.0f} % of the time",
      samples,
      format_size_bytes(
          static_cast<uint64_t>(std::max(0.0, totals.read_bytes - begin_.read_bytes) / step_s_)),
      1e3 * decode_s / samples, thread_count_, 100 * busy);
  if (busy > 0.7)
    return fmt::format(
        "decoding bounds: {}; raise data.threads to {:.0f}, or prepare smaller "
        "pictures or latents",
        facts,
        std::ceil(static_cast<double>(thread_count_) *
                  std::max(1.5, step_s_ / (step_s_ - wait_s_ + 1e-9))));
  return fmt::format("the store bounds: {}; raise data.prefetch, or bring the shards nearer",
                     facts);
}

}  // namespace yard::loop
