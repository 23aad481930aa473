#include "storage/store_wait.h"

#include <gtest/gtest.h>

#include "base/testing/fake_clock.h"

namespace yard::storage {
namespace {

using namespace std::chrono_literals;

TEST(StoreWaitTest, AsksAgainMoreAndMoreSlowlyUntilItsTimeIsUp) {
  FakeClock clock;
  Counter retries;
  StoreWait wait(10s, retries, {}, clock);
  const auto since = clock.now();
  std::chrono::nanoseconds before{0};
  int attempt = 0;
  while (wait.wait({Code::kUnavailable, "away"}, since, attempt)) {
    const auto elapsed = clock.now() - since;
    EXPECT_LE(elapsed - before, 2s) << attempt;
    before = elapsed;
    ++attempt;
  }
  EXPECT_EQ(clock.now(), wait.end(since));
  EXPECT_EQ(clock.now() - since, 10s);
  EXPECT_EQ(retries.value(), attempt);
}

TEST(StoreWaitTest, WhoAsksLaterHasWhatIsLeftOfTheSameTime) {
  FakeClock clock;
  Counter retries;
  StoreWait wait(10s, retries, {}, clock);
  const Error away{Code::kUnavailable, "away"};
  const auto first = clock.now();
  EXPECT_TRUE(wait.wait(away, first, 0));
  clock.advance(5s);
  const auto second = clock.now();
  EXPECT_EQ(wait.end(second), first + 10s);
  while (wait.wait(away, second, 9)) {
  }
  EXPECT_EQ(clock.now(), first + 10s);
  EXPECT_FALSE(wait.wait(away, clock.now(), 0));
  // An answer begins it anew, and so does a time in which nobody asked.
  wait.note_answer();
  EXPECT_EQ(wait.end(clock.now()), clock.now() + 10s);
  EXPECT_TRUE(wait.wait(away, clock.now(), 0));
  clock.advance(11s);
  EXPECT_EQ(wait.end(clock.now()), clock.now() + 10s);
  EXPECT_TRUE(wait.wait(away, clock.now(), 0));
}

TEST(StoreWaitTest, WhatDoesNotPassIsNotWaitedFor) {
  FakeClock clock;
  Counter retries;
  StoreWait wait(10s, retries, {}, clock);
  for (const Code code :
       {Code::kNotFound, Code::kCorrupt, Code::kInvalidArgument, Code::kCancelled})
    EXPECT_FALSE(wait.wait({code, "no"}, clock.now(), 0));
  EXPECT_EQ(retries.value(), 0);
}

TEST(StoreWaitTest, AStopEndsTheWait) {
  FakeClock clock;
  Counter retries;
  StopSource stop;
  StoreWait wait(10s, retries, stop.token(), clock);
  stop.request();
  EXPECT_FALSE(wait.wait({Code::kUnavailable, "away"}, clock.now(), 0));
}

}  // namespace
}  // namespace yard::storage
