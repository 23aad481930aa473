#include "mount/fetch_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>

namespace yard::mount {
namespace {

TEST(FetchQueueTest, WhatIsAwaitedGoesBeforeWhatIsFetchedAhead) {
  std::promise<void> gate;
  std::vector<std::string> order;
  {
    FetchQueue queue(1);
    queue.push(FetchQueue::Urgency::kAwaited, [&]() -> Result<uint64_t> {
      gate.get_future().wait();
      return uint64_t{0};
    });
    for (const char* name : {"ahead 1", "ahead 2"})
      queue.push(FetchQueue::Urgency::kAhead, [&order, name]() -> Result<uint64_t> {
        order.emplace_back(name);
        return uint64_t{1};
      });
    queue.push(FetchQueue::Urgency::kAwaited, [&order]() -> Result<uint64_t> {
      order.emplace_back("awaited");
      return uint64_t{1};
    });
    gate.set_value();
  }
  EXPECT_EQ(order, (std::vector<std::string>{"awaited", "ahead 1", "ahead 2"}));
}

TEST(FetchQueueTest, TasksAheadLeaveThreadsForThoseWhoWait) {
  std::promise<void> gate;
  const std::shared_future<void> open = gate.get_future().share();
  std::atomic<int> begun = 0;
  FetchQueue queue(8);
  for (int i = 0; i < 50; ++i)
    queue.push(FetchQueue::Urgency::kAhead, [open, &begun]() -> Result<uint64_t> {
      ++begun;
      open.wait();
      return uint64_t{1};
    });
  // More often than there are threads: it hangs when all of them come to wait at the gate.
  for (int i = 0; i < 20; ++i) {
    std::promise<void> served;
    queue.push(FetchQueue::Urgency::kAwaited, [&served]() -> Result<uint64_t> {
      served.set_value();
      return uint64_t{1};
    });
    served.get_future().wait();
  }
  EXPECT_LE(begun, 6);
  gate.set_value();
}

TEST(FetchQueueTest, TheEndRunsAllThatIsQueued) {
  std::atomic<int> count = 0;
  {
    FetchQueue queue(4);
    for (int i = 0; i < 500; ++i)
      queue.push(i % 2 == 0 ? FetchQueue::Urgency::kAhead : FetchQueue::Urgency::kAwaited,
                 [&count]() -> Result<uint64_t> {
                   ++count;
                   return Error{Code::kUnavailable, "busy"};
                 });
  }
  EXPECT_EQ(count, 500);
}

}  // namespace
}  // namespace yard::mount
