#include "storage/retry.h"

#include <gtest/gtest.h>

namespace yard::storage {
namespace {

using namespace std::chrono_literals;

TEST(RetryTest, TheWaitIsUniformBelowABoundThatDoublesUpToItsLimit) {
  const RetryOptions options{.delay_first_max = 100ms, .delay_max = 1000ms};
  EXPECT_EQ(retry_delay(options, 0, 0.0), 0ms);
  EXPECT_EQ(retry_delay(options, 0, 0.5), 50ms);
  EXPECT_EQ(retry_delay(options, 1, 0.5), 100ms);
  EXPECT_EQ(retry_delay(options, 3, 0.5), 400ms);
  EXPECT_EQ(retry_delay(options, 4, 0.5), 500ms);
  EXPECT_EQ(retry_delay(options, 1'000'000, 0.5), 500ms);
}

TEST(RetryTest, TheBudgetIsSpentByRetriesAndEarnedBySuccesses) {
  RetryBudget budget({.budget_max = 20, .retry_cost = 5, .success_gain = 1});
  EXPECT_TRUE(budget.take(true));  // a time-out costs two
  EXPECT_TRUE(budget.take(false));
  EXPECT_TRUE(budget.take(false));
  EXPECT_FALSE(budget.take(false));
  for (int i = 0; i < 5; ++i) budget.give();
  EXPECT_FALSE(budget.take(true));
  EXPECT_TRUE(budget.take(false));
  for (int i = 0; i < 1000; ++i) budget.give();
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(budget.take(false));
  EXPECT_FALSE(budget.take(false));  // never more than at the start
}

}  // namespace
}  // namespace yard::storage
