#include "base/stop_token.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <cstdint>
#include <thread>

namespace yard {
namespace {

using namespace std::chrono_literals;

bool readable(int fd) {
  pollfd item{fd, POLLIN, 0};
  return ::poll(&item, 1, 0) == 1;
}

TEST(StopToken, WithoutSourceIsNeverStopped) {
  const StopToken token;
  EXPECT_FALSE(token.stopped());
  EXPECT_FALSE(token.wait_for(1ms));
  EXPECT_EQ(token.fd(), -1);
}

TEST(StopToken, EveryCopySeesTheRequest) {
  const StopSource source;
  const StopToken token = source.token();
  const StopToken copy = token;
  EXPECT_FALSE(copy.stopped());
  EXPECT_FALSE(readable(copy.fd()));
  source.request();
  EXPECT_TRUE(token.stopped());
  EXPECT_TRUE(copy.stopped());
  EXPECT_TRUE(readable(copy.fd()));
}

TEST(StopToken, SecondRequestChangesNothing) {
  const StopSource source;
  source.request();
  source.request();
  EXPECT_TRUE(source.token().wait_for(0s));
  EXPECT_TRUE(readable(source.token().fd()));
}

TEST(StopToken, OutlivesItsSource) {
  StopToken token;
  {
    const StopSource source;
    token = source.token();
    source.request();
  }
  EXPECT_TRUE(token.stopped());
  EXPECT_TRUE(readable(token.fd()));
}

TEST(StopToken, RequestEndsAWaitOfAnotherThread) {
  const StopSource source;
  std::thread waiter(
      [token = source.token()] { EXPECT_TRUE(token.wait_for(std::chrono::nanoseconds::max())); });
  source.request();
  waiter.join();
}

TEST(StopToken, WaitTimesOut) {
  const StopSource source;
  const auto start = std::chrono::steady_clock::now();
  EXPECT_FALSE(source.token().wait_for(3ms));
  EXPECT_GE(std::chrono::steady_clock::now() - start, 3ms);
  EXPECT_FALSE(source.token().wait_for(-1s));
}

TEST(StopToken, RequestKeepsErrnoOfTheInterruptedCode) {
  const StopSource source;
  ASSERT_EQ(::eventfd_write(source.token().fd(), UINT64_MAX - 1), 0);  // full: a write must fail
  errno = EDOM;
  source.request();
  EXPECT_EQ(errno, EDOM);
}

// In a child, for signal dispositions belong to the whole process.
TEST(StopOnSignalsDeathTest, FirstSignalAsksToStopAndSecondEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        const StopSource source = stop_on_signals();
        ::raise(SIGINT);
        if (!source.token().stopped()) ::_exit(1);
        ::raise(SIGINT);
        ::_exit(2);
      },
      testing::KilledBySignal(SIGINT), "");
}

TEST(StopOnSignalsDeathTest, EachSignalAsksOnItsOwn) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        const StopSource source = stop_on_signals();
        ::raise(SIGTERM);
        ::raise(SIGINT);
        ::_exit(source.token().wait_for(0s) ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace yard
