#include "storage/buffer_pool.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <thread>

namespace yard::storage {
namespace {

TEST(BufferPoolTest, LargeBuffersOfOneSizeAreUsedAgain) {
  BufferPool pool;
  std::set<std::byte*> seen;
  for (int i = 0; i < 10; ++i) {
    const auto first = pool.take(4 << 20), second = pool.take(4 << 20);
    seen.insert(first.span().data());
    seen.insert(second.span().data());
  }
  EXPECT_EQ(seen.size(), 2U);
}

TEST(BufferPoolTest, ABufferHasTheSizeAskedForAndMovesWithItsBytes) {
  BufferPool pool;
  for (const size_t size : {size_t{0}, size_t{1}, size_t{1} << 20, (size_t{2} << 20) + 1}) {
    auto buffer = pool.take(size);
    EXPECT_EQ(buffer.span().size(), size);
    if (size > 0) std::memset(buffer.span().data(), 7, size);
    auto moved = std::move(buffer);
    EXPECT_FALSE(buffer);
    EXPECT_TRUE(moved);
    EXPECT_EQ(moved.span().size(), size);
    EXPECT_TRUE(size == 0 || moved.span()[size - 1] == std::byte{7});
  }
}

TEST(BufferPoolTest, TwoThreadsNeverHaveTheSameBuffer) {
  BufferPool pool;
  std::vector<std::thread> threads;
  for (int id = 0; id < 4; ++id)
    threads.emplace_back([&, id] {
      for (int i = 0; i < 200; ++i) {
        const auto buffer = pool.take(i % 3 == 0 ? 1 << 20 : 2 << 20);
        buffer.span().front() = std::byte(id);
        std::this_thread::yield();
        EXPECT_EQ(buffer.span().front(), std::byte(id));
      }
    });
  for (auto& thread : threads) thread.join();
}

}  // namespace
}  // namespace yard::storage
