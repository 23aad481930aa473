#include "jobs/retry.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>

namespace yard::jobs {
namespace {

RankExit ended(int rank, int code, int signal_sent = 0) {
  return {.rank = rank, .code = code, .signal = 0, .signal_sent = signal_sent};
}
RankExit killed(int rank, int signal, int signal_sent = 0) {
  return {.rank = rank, .code = 128 + signal, .signal = signal, .signal_sent = signal_sent};
}

TEST(ClassifyAttemptTest, OneRankAloneFollowsTheTableOfExitCodes) {
  struct Row {
    RankExit exit;
    Cause cause;
  };
  const Row rows[] = {
      {ended(0, 0), Cause::kDone},
      {ended(0, 1), Cause::kUserFault},
      {ended(0, 2), Cause::kUserFault},
      {ended(0, 5), Cause::kUserFault},
      {ended(0, 6), Cause::kUnavailable},
      {ended(0, 7), Cause::kUnavailable},
      {ended(0, 8), Cause::kStopped},
      {ended(0, 70), Cause::kUserFault},
      {killed(0, SIGKILL), Cause::kRankFault},
      {killed(0, SIGSEGV), Cause::kRankFault},
      {killed(0, SIGTERM), Cause::kStopped},
  };
  for (const Row& row : rows) {
    EXPECT_EQ(classify_attempt({row.exit}).cause, row.cause)
        << row.exit.code << " " << row.exit.signal;
  }
}

TEST(ClassifyAttemptTest, TheOrderOfTheDeathsDoesNotMatter) {
  // Rank 2 was shot; 0 lost its peer; 1, a script, raised for the same reason.
  std::vector<RankExit> exits = {ended(0, 6), ended(1, 1), killed(2, SIGKILL)};
  std::ranges::sort(exits, {}, &RankExit::rank);
  do {
    const auto outcome = classify_attempt(exits);
    EXPECT_EQ(outcome.cause, Cause::kRankFault);
    EXPECT_EQ(outcome.decisive.rank, 2);
    EXPECT_EQ(outcome.detail, "rank 2 was killed by signal 9 (Killed)");
  } while (std::ranges::next_permutation(exits, {}, &RankExit::rank).found);
}

TEST(ClassifyAttemptTest, AnOwnFaultOutweighsThePeerThatNoticedItFirst) {
  EXPECT_EQ(classify_attempt({ended(0, 6), ended(1, 4, SIGTERM)}).cause, Cause::kUserFault);
  EXPECT_EQ(classify_attempt({ended(0, 6), ended(1, 4, SIGTERM)}).decisive.code, 4);
}

TEST(ClassifyAttemptTest, WhatFollowsOurOwnSignalsIsNotBlamed) {
  EXPECT_EQ(classify_attempt({ended(0, 6), ended(1, 1, SIGTERM)}).cause, Cause::kUnavailable);
  EXPECT_EQ(classify_attempt({ended(0, 6), killed(1, SIGTERM, SIGTERM)}).cause,
            Cause::kUnavailable);
  EXPECT_EQ(classify_attempt({ended(0, 6), killed(1, SIGKILL, SIGKILL)}).cause,
            Cause::kUnavailable);
  EXPECT_EQ(classify_attempt({ended(0, 8, SIGTERM), killed(1, SIGKILL, SIGKILL)}).cause,
            Cause::kStopped);
}

TEST(ClassifyAttemptTest, AKillThatWasNotOursIsSeenAfterOurSigterm) {
  EXPECT_EQ(classify_attempt({ended(0, 1), killed(1, SIGKILL, SIGTERM)}).cause, Cause::kRankFault);
}

TEST(DecideRetryTest, EachCauseHasItsOwnBudget) {
  const RetryBudget budget{.rank_fault = 2, .unavailable = 1};
  RetryHistory history{.rank_fault_count = 1, .unavailable_count = 1};
  EXPECT_EQ(decide_retry(Cause::kRankFault, budget, history).retries_left, 1);
  const auto refused = decide_retry(Cause::kUnavailable, budget, history);
  EXPECT_EQ(refused.retries_left, 0);
  EXPECT_EQ(refused.why_not, "1 of 1 restarts after a lost peer or store are used up");
  history.rank_fault_count = 2;
  EXPECT_EQ(decide_retry(Cause::kRankFault, budget, history).retries_left, 0);
}

TEST(DecideRetryTest, ThreeStalledAttemptsEndTheJobBeforeTheBudgetDoes) {
  const RetryBudget budget;
  EXPECT_EQ(decide_retry(Cause::kRankFault, budget, {.stalled_in_a_row = 2}).retries_left, 10);
  const auto refused = decide_retry(Cause::kRankFault, budget, {.stalled_in_a_row = 3});
  EXPECT_EQ(refused.retries_left, 0);
  EXPECT_EQ(refused.why_not, "3 attempts in a row made no progress");
}

TEST(CodeOfFailureTest, ARanksOwnCodeIsHandedOn) {
  EXPECT_EQ(code_of_failure(Cause::kUserFault, 4), Code::kCorrupt);
  EXPECT_EQ(code_of_failure(Cause::kUserFault, 5), Code::kExhausted);
  EXPECT_EQ(code_of_failure(Cause::kUserFault, 1), Code::kInternal);
  EXPECT_EQ(code_of_failure(Cause::kRankFault, 137), Code::kUnavailable);
}

}  // namespace
}  // namespace yard::jobs
