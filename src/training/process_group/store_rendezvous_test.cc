#include "process_group/store_rendezvous.h"

#include <gtest/gtest.h>

#include <future>
#include <mutex>
#include <set>
#include <string>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "process_group/testing/rank_threads.h"

namespace yard::process_group {
namespace {

using namespace std::chrono_literals;
using Store = c10::intrusive_ptr<c10d::Store>;

Store new_store() {
  return c10::make_intrusive<c10d::HashStore>();
}

StorePlace place_of(int rank, int size) {
  return {.rank = rank, .world_size = size, .timeout = 60s};
}

// The ids that the ranks got; all of them talked to each other.
std::set<std::string> meet(const Store& store, int size, uint64_t generation = 0) {
  std::mutex mutex;
  std::set<std::string> ids;
  run_ranks(size, [&](int rank) {
    StorePlace place = place_of(rank, size);
    place.generation = generation;
    auto connection = connect_through(store, place, StopToken());
    ASSERT_TRUE(connection) << connection.error().message;
    ASSERT_TRUE(connection->group->barrier()->wait());
    std::lock_guard lock(mutex);
    ids.insert(connection->id);
  });
  return ids;
}

TEST(StoreRendezvousTest, AllRanksMeetAndHaveOneId) {
  EXPECT_EQ(meet(new_store(), 3).size(), 1u);
}

TEST(StoreRendezvousTest, OneStoreServesOneGroupAfterTheOther) {
  const Store store = new_store();
  const auto first = meet(store, 3);
  const auto second = meet(store, 2);
  EXPECT_EQ(second.size(), 1u);
  EXPECT_NE(first, second);
}

TEST(StoreRendezvousTest, WhatAKilledRankZeroLeftIsPassedOver) {
  const Store store = new_store();
  store->set("yard/rank0", std::string("0 1 somebody 127.0.0.1"));
  std::promise<void> tried;
  run_ranks(2, [&](int rank) {
    // Rank 1 reads the old notice first: rank 0 waits until it asked the store for it.
    if (rank == 0) tried.get_future().wait();
    if (rank == 1) tried.set_value();
    auto connection = connect_through(store, place_of(rank, 2), StopToken());
    ASSERT_TRUE(connection) << connection.error().message;
    EXPECT_TRUE(connection->group->barrier()->wait());
  });
}

TEST(StoreRendezvousTest, AnOlderAttemptsNoticeIsPassedOver) {
  const Store store = new_store();
  store->set("yard/rank0", std::string("0 1 somebody 127.0.0.1"));
  EXPECT_EQ(meet(store, 2, 1).size(), 1u);
}

TEST(StoreRendezvousTest, AProcessOfAnOlderAttemptIsTurnedAway) {
  const Store store = new_store();
  store->set("yard/rank0", std::string("3 1 somebody 127.0.0.1"));
  StorePlace place = place_of(1, 2);
  place.generation = 2;
  const auto connection = connect_through(store, place, StopToken());
  ASSERT_FALSE(connection);
  EXPECT_EQ(connection.error().code, Code::kInvalidArgument);
  EXPECT_NE(connection.error().message.find("attempt 2"), std::string::npos);
}

TEST(StoreRendezvousTest, ARankZeroThatNeverComesIsADeadline) {
  StorePlace place = place_of(1, 2);
  place.timeout = 30ms;
  const auto connection = connect_through(new_store(), place, StopToken());
  ASSERT_FALSE(connection);
  EXPECT_EQ(connection.error().code, Code::kDeadlineExceeded);
  EXPECT_NE(connection.error().message.find("rank 0"), std::string::npos);
}

TEST(StoreRendezvousTest, TheRanksThatNeverCameAreNamed) {
  StorePlace place = place_of(0, 3);
  place.timeout = 300ms;
  const auto connection = connect_through(new_store(), place, StopToken());
  ASSERT_FALSE(connection);
  EXPECT_EQ(connection.error().code, Code::kDeadlineExceeded);
  EXPECT_NE(connection.error().message.find("1 and 2"), std::string::npos)
      << connection.error().message;
}

TEST(StoreRendezvousTest, AWaitForRankZeroCanBeInterrupted) {
  const StopSource stop;
  stop.request();
  const auto connection = connect_through(new_store(), place_of(1, 2), stop.token());
  ASSERT_FALSE(connection);
  EXPECT_EQ(connection.error().code, Code::kCancelled);
}

TEST(StoreRendezvousTest, SomethingElseUnderTheKeyIsCorrupt) {
  const Store store = new_store();
  store->set("yard/rank0", std::string("hello"));
  const auto connection = connect_through(store, place_of(1, 2), StopToken());
  ASSERT_FALSE(connection);
  EXPECT_EQ(connection.error().code, Code::kCorrupt);
}

}  // namespace
}  // namespace yard::process_group
