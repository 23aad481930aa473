#include "checkpoint/exchange.h"

#include <gtest/gtest.h>

#include "base/testing/fake_clock.h"
#include "checkpoint/testing/sharded_state.h"
#include "storage/memory_store.h"
#include "storage/testing/faulty_store.h"

namespace yard::checkpoint {
namespace {

using storage::MemoryStore;

TEST(GroupExchange, GivesEveryRankTheMessagesOfAllInRankOrder) {
  testing::on_exchanges(4, [](Exchange& exchange) {
    for (int round = 0; round < 3; ++round) {
      // Of other lengths on each rank, empty ones among them.
      const auto text = [&](int rank) {
        return std::string(static_cast<size_t>(rank * round * 1000), static_cast<char>('a' + rank));
      };
      const auto all = exchange.all_gather(text(exchange.rank()));
      ASSERT_TRUE(all);
      for (int rank = 0; rank < 4; ++rank) EXPECT_EQ((*all)[static_cast<size_t>(rank)], text(rank));
    }
  });
}

TEST(StoreExchange, GivesEveryRankTheMessagesOfAllAndCleansUp) {
  MemoryStore store;
  std::vector<std::jthread> ranks;
  for (int rank = 0; rank < 3; ++rank)
    ranks.emplace_back([&, rank] {
      auto exchange = exchange_over(store, "run/", {.rank = rank, .world_size = 3, .run_id = "a"});
      ASSERT_TRUE(exchange);
      for (int round = 0; round < 5; ++round) {
        const auto all = (*exchange)->all_gather(std::to_string(rank * 10 + round));
        ASSERT_TRUE(all);
        for (int peer = 0; peer < 3; ++peer)
          EXPECT_EQ((*all)[static_cast<size_t>(peer)], std::to_string(peer * 10 + round));
      }
    });
  ranks.clear();
  EXPECT_LE(storage::list_all(store, "")->size(), 3U);  // of the last round
}

TEST(StoreExchange, ARankThatDoesNotComeIsNamed) {
  MemoryStore store;
  FakeClock clock;
  const auto exchange =
      exchange_over(store, "", {.rank = 0, .world_size = 2, .run_id = "a"}, clock);
  const auto all = (*exchange)->all_gather("x");
  ASSERT_FALSE(all);
  EXPECT_EQ(all.error().code, Code::kDeadlineExceeded);
  EXPECT_NE(all.error().message.find("rank 1 did not come within 600 s"), std::string::npos);
  EXPECT_FALSE((*exchange)->all_gather("y"));  // dead
}

TEST(StoreExchange, ARankThatIsThereTwiceIsRefused) {
  MemoryStore store;
  FakeClock clock;
  const StoreExchangeOptions options{.rank = 1, .world_size = 2, .run_id = "a"};
  const auto first = exchange_over(store, "", options, clock);
  EXPECT_FALSE((*first)->all_gather("x"));
  const auto second = exchange_over(store, "", options, clock);
  const auto all = (*second)->all_gather("x");
  ASSERT_FALSE(all);
  EXPECT_EQ(all.error().code, Code::kInvalidArgument);
}

TEST(StoreExchange, AnotherGenerationIsNotHeard) {
  MemoryStore store;
  FakeClock clock;
  const auto old = exchange_over(store, "", {.rank = 1, .world_size = 2, .run_id = "a"}, clock);
  EXPECT_FALSE((*old)->all_gather("stale"));
  const auto exchange =
      exchange_over(store, "", {.rank = 0, .world_size = 2, .run_id = "a", .generation = 1}, clock);
  EXPECT_EQ((*exchange)->all_gather("x").error().code, Code::kDeadlineExceeded);
}

TEST(StoreExchange, AStopEndsTheWait) {
  MemoryStore store;
  const StopSource stop;
  stop.request();
  const auto exchange =
      exchange_over(store, "", {.rank = 0, .world_size = 2, .run_id = "a", .stop = stop.token()});
  EXPECT_EQ((*exchange)->all_gather("x").error().code, Code::kCancelled);
}

TEST(StoreExchange, RunIdsThatAreNoKeysAreRefused) {
  MemoryStore store;
  EXPECT_FALSE(exchange_over(store, "", {.run_id = ""}));
  EXPECT_FALSE(exchange_over(store, "", {.run_id = "a/b"}));
  EXPECT_FALSE(exchange_over(store, "", {.run_id = std::string(2000, 'a')}));
}

}  // namespace
}  // namespace yard::checkpoint
