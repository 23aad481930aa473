#include "loop/guardrails.h"

#include <gtest/gtest.h>

namespace yard::loop {
namespace {

constexpr GuardRecipe kWatched{.spike_factor = 2, .spike_steps = 2, .spike_warmup = 5};

LossMean after(const std::vector<double>& losses) {
  LossMean state;
  for (const double loss : losses) EXPECT_FALSE(note_loss(kWatched, loss, state)) << loss;
  return state;
}

TEST(LossSpikeTest, AsManyHighLossesInARowAreASpike) {
  LossMean state = after({1, 1, 1, 1, 1});
  EXPECT_FALSE(note_loss(kWatched, 2.5, state));
  EXPECT_TRUE(note_loss(kWatched, 9, state));
  EXPECT_NEAR(state.mean, 1, 1e-12) << "spikes do not count";
  EXPECT_FALSE(note_loss(kWatched, 2.5, state)) << "the row begins anew";
}

TEST(LossSpikeTest, ARowThatIsBrokenIsNone) {
  LossMean state = after({1, 1, 1, 1, 1});
  EXPECT_FALSE(note_loss(kWatched, 3, state));
  EXPECT_FALSE(note_loss(kWatched, 1, state));
  EXPECT_FALSE(note_loss(kWatched, 3, state));
}

TEST(LossSpikeTest, WithinTheWarmUpAndWithoutAFactorNothingIs) {
  after({1, 100, 100, 100, 1});
  LossMean state;
  for (int i = 0; i < 1000; ++i) EXPECT_FALSE(note_loss(GuardRecipe{}, i == 500 ? 1e9 : 1, state));
}

TEST(LossSpikeTest, TheMeanIsKeptThroughJson) {
  const LossMean state = after({4, 2, 6, 4});
  EXPECT_NEAR(state.mean, 4, 1e-12);
  const LossMean again = *loss_mean_from(*parse_json(to_json(state).dump(), "state"), "state");
  EXPECT_EQ(again.mean, state.mean);
  EXPECT_EQ(again.count, 4);
  EXPECT_EQ(loss_mean_from(Json(), "state")->count, 0);
  EXPECT_FALSE(loss_mean_from(Json{{"mean", "x"}}, "state"));
}

// The finding at the end of a window of equal steps.
std::optional<SlowRank> slow_of(const std::vector<double>& seconds, double factor) {
  RankTimes times;
  for (int64_t i = 1; i < RankTimes::kWindow; ++i)
    EXPECT_FALSE(times.add(seconds, factor)) << "not before the window's end";
  return times.add(seconds, factor);
}

TEST(RankTimesTest, TheSlowestIsNamedWhereItIsMuchSlowerThanTheMedian) {
  const auto slow = slow_of({0.1, 0.11, 0.2, 0.09}, 1.3);
  ASSERT_TRUE(slow);
  EXPECT_EQ(slow->rank, 2);
  EXPECT_NEAR(slow->factor, 0.2 / 0.105, 1e-9);
  EXPECT_FALSE(slow_of({0.1, 0.12, 0.13}, 1.3));
  EXPECT_FALSE(slow_of({0.1, 0.2, 0.2}, 0));
  EXPECT_FALSE(slow_of({0.2}, 1.3)) << "alone nobody waits";
  EXPECT_FALSE(slow_of({0.0002, 0.0001, 0.0001}, 1.3)) << "a tenth of a millisecond is noise";
}

TEST(DataWaitTest, SaysWhatBounds) {
  const auto explain = [](double wait_s, const LoaderTotals& totals) {
    DataWaitWatch watch(2);
    for (int64_t i = 1; i < DataWaitWatch::kWindow; ++i)
      EXPECT_FALSE(watch.add(0.1, wait_s, 0.05, {}));
    const auto found = watch.add(0.1, wait_s, 0.05, totals);
    return found ? found->why : "nothing";
  };
  EXPECT_EQ(explain(0.004, {}), "nothing");
  // Five seconds of steps: two threads decoded for 9 s.
  EXPECT_PRED_FORMAT2(testing::IsSubstring, "decoding bounds: 300 samples",
                      explain(0.05, {.samples = 300, .decode_seconds = 9, .read_bytes = 1e6}));
  EXPECT_PRED_FORMAT2(testing::IsSubstring, "raise data.threads to 4",
                      explain(0.05, {.samples = 300, .decode_seconds = 9, .read_bytes = 1e6}));
  EXPECT_PRED_FORMAT2(testing::IsSubstring, "the store bounds",
                      explain(0.05, {.samples = 300, .decode_seconds = 1, .read_bytes = 1e6}));
  EXPECT_PRED_FORMAT2(testing::IsSubstring, "no sample was read", explain(0.05, {}));
}

}  // namespace
}  // namespace yard::loop
