#include "base/bounded_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

namespace yard {
namespace {

TEST(BoundedQueue, KeepsTheOrder) {
  BoundedQueue<int> queue(3);
  for (const int item : {1, 2, 3}) EXPECT_TRUE(queue.push(item));
  EXPECT_EQ(queue.size(), 3u);
  for (const int item : {1, 2, 3}) EXPECT_EQ(queue.pop(), item);
}

TEST(BoundedQueue, CloseLetsConsumersDrainThenEnds) {
  BoundedQueue<int> queue(2);
  EXPECT_TRUE(queue.push(7));
  queue.close();
  EXPECT_FALSE(queue.push(8));
  EXPECT_EQ(queue.pop(), 7);
  EXPECT_EQ(queue.pop(), std::nullopt);
}

TEST(BoundedQueue, CloseWakesABlockedProducerAndConsumer) {
  BoundedQueue<int> full(1), empty(1);
  EXPECT_TRUE(full.push(1));
  std::thread producer([&] { EXPECT_FALSE(full.push(2)); });
  std::thread consumer([&] { EXPECT_EQ(empty.pop(), std::nullopt); });
  full.close();
  empty.close();
  producer.join();
  consumer.join();
}

TEST(BoundedQueue, TakesItemsThatCanOnlyMove) {
  BoundedQueue<std::unique_ptr<int>> queue(1);
  EXPECT_TRUE(queue.push(std::make_unique<int>(5)));
  EXPECT_EQ(**queue.pop(), 5);
}

TEST(BoundedQueue, EveryItemArrivesOnceAndNeverMoreThanTheCapacityWait) {
  constexpr int kThreads = 4;
  constexpr int kItems = 500;
  BoundedQueue<int> queue(3);
  std::vector<std::atomic<int>> seen(kThreads * kItems);
  std::vector<std::thread> producers, consumers;
  for (int t = 0; t < kThreads; ++t) {
    producers.emplace_back([&queue, t] {
      for (int i = 0; i < kItems; ++i) EXPECT_TRUE(queue.push(t * kItems + i));
    });
    consumers.emplace_back([&] {
      while (const auto item = queue.pop()) {
        EXPECT_LE(queue.size(), 3u);
        ++seen[static_cast<size_t>(*item)];
      }
    });
  }
  for (auto& thread : producers) thread.join();
  queue.close();
  for (auto& thread : consumers) thread.join();
  for (const auto& count : seen) EXPECT_EQ(count, 1);
}

TEST(BoundedQueueDeathTest, RefusesNoCapacity) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(BoundedQueue<int>(0), "check failed");
}

}  // namespace
}  // namespace yard
