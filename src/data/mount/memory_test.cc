#include "mount/memory.h"

#include <gtest/gtest.h>

#include <cstring>
#include <thread>

namespace yard::mount {
namespace {

constexpr uint64_t kKib = 1 << 10, kMib = 1 << 20;

TEST(MemoryTest, NoMoreThanTheBudgetIsGivenOut) {
  Memory memory(4 * kMib);
  std::vector<Memory::Buffer> buffers;
  for (int i = 0; i < 100; ++i)
    if (auto buffer = memory.take(kMib)) buffers.push_back(std::move(buffer));
  EXPECT_EQ(buffers.size(), 4U);
  EXPECT_EQ(memory.used_bytes(), 4 * kMib);
  buffers.pop_back();
  EXPECT_TRUE(memory.take(kMib));
}

TEST(MemoryTest, WhatIsKeptOfOneSizeMakesRoomForAnother) {
  Memory memory(4 * kMib);
  {
    const auto four = {memory.take(kMib), memory.take(kMib), memory.take(kMib), memory.take(kMib)};
  }
  EXPECT_EQ(memory.used_bytes(), 0U);
  const auto large = memory.take(4 * kMib);
  ASSERT_TRUE(large);
  std::memset(large.data(), 1, 4 * kMib);
}

TEST(MemoryTest, ABufferIsChargedWithWhatItTakes) {
  EXPECT_EQ(Memory::charge_bytes(1), 16 * kKib);
  EXPECT_EQ(Memory::charge_bytes(50'000), 64 * kKib);
  EXPECT_EQ(Memory::charge_bytes(kMib), kMib);
  EXPECT_EQ(Memory::charge_bytes(kMib + 1), 2 * kMib);
}

TEST(MemoryTest, ManyThreadsStayWithinTheBudget) {
  Memory memory(kMib);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&memory, t] {
      for (int i = 0; i < 2000; ++i) {
        auto buffer = memory.take((16U << (i % 4)) * kKib);
        if (!buffer) continue;
        buffer.data()[0] = std::byte(t);
        EXPECT_LE(memory.used_bytes(), kMib);
        EXPECT_EQ(buffer.data()[0], std::byte(t));
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(memory.used_bytes(), 0U);
}

TEST(MemoryTest, TheDefaultIsAShareOfTheMachine) {
  EXPECT_GE(default_budget_bytes(), 64 * kMib);
  EXPECT_LE(default_budget_bytes(), 4096 * kMib);
}

}  // namespace
}  // namespace yard::mount
