#include "checkpoint/peer_memory.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <mutex>

#include "checkpoint/saver.h"
#include "checkpoint/testing/sharded_state.h"
#include "storage/memory_store.h"

namespace yard::checkpoint {
namespace {

using storage::MemoryStore;
using testing::make_state;
using testing::State;

TEST(PartnerRanks, AreOnTheNextHostAtTheSamePlace) {
  EXPECT_EQ(partner_ranks({"a", "a", "b", "b"}), (std::vector<int>{2, 3, 0, 1}));
  EXPECT_EQ(partner_ranks({"a", "b", "a", "b", "c", "c"}), (std::vector<int>{1, 4, 3, 5, 0, 2}));
  EXPECT_EQ(partner_ranks({"a", "b"}), (std::vector<int>{1, 0}));
}

TEST(PartnerRanks, OfUnevenHostsAreStillOnAnotherOne) {
  EXPECT_EQ(partner_ranks({"a", "a", "a", "b"}), (std::vector<int>{3, 3, 3, 0}));
  const std::vector<std::string> hosts{"a", "b", "b", "c", "c", "c", "d"};
  const auto partners = partner_ranks(hosts);
  for (size_t rank = 0; rank < hosts.size(); ++rank)
    EXPECT_NE(hosts[rank], hosts[static_cast<size_t>(partners[rank])]);
}

TEST(PartnerRanks, OfOneHostAreItsNextRanksAndOfOneRankItself) {
  EXPECT_EQ(partner_ranks({"a", "a", "a"}), (std::vector<int>{1, 2, 0}));
  EXPECT_EQ(partner_ranks({"a"}), std::vector<int>{0});
  EXPECT_TRUE(partner_ranks({}).empty());
}

// Four ranks on two hosts; their memories outlive groups, as processes do.
class PeerMemories : public ::testing::Test {
 protected:
  void SetUp() override {
    for (size_t rank = 0; rank < hosts.size(); ++rank) replace(rank);
  }
  // Another process is that rank now.
  void replace(size_t rank) { memories[rank] = std::make_unique<PeerMemory>(hosts[rank]); }

  void save(const std::vector<int64_t>& steps) {
    testing::on_groups(hosts, [&](collective::Group& group) {
      const auto exchange = exchange_over(group);
      PeerMemory& memory = *memories[static_cast<size_t>(group.rank())];
      Saver saver(CheckpointStore(store, "run"), *exchange, {.memory = {&memory, &group}});
      State state = make_state(group.rank(), group.size());
      for (const int64_t step : steps) {
        testing::fill(state, step);
        const SaveNotes notes{.rank_metadata = {{"rank", group.rank()}, {"step", step}}};
        const Status saved = saver.save(step, testing::views_of(state), notes);
        ASSERT_TRUE(saved) << saved.error().message;
        testing::fill(state, -1);
      }
      const Status saved = saver.wait();
      EXPECT_TRUE(saved) << saved.error().message;
    });
  }

  // -1: there is none. Every rank must find the same, and its own bytes of that step.
  int64_t recover(const std::vector<std::string>& on_hosts) {
    std::mutex mutex;
    std::vector<int64_t> found;
    testing::on_groups(on_hosts, [&](collective::Group& group) {
      PeerMemory& memory = *memories[static_cast<size_t>(group.rank())];
      const auto copy = memory.recover(group);
      ASSERT_TRUE(copy) << copy.error().message;
      {
        const std::lock_guard lock(mutex);
        found.push_back(*copy ? (*copy)->step : -1);
      }
      State state = make_state(group.rank(), static_cast<int>(hosts.size()));
      const Status loaded = memory.load(testing::targets_of(state));
      EXPECT_EQ(loaded.has_value(), copy->has_value());
      if (!*copy) return;
      EXPECT_EQ(testing::wrong_count(state, (*copy)->step), 0U);
      EXPECT_EQ((*copy)->notes.rank_metadata["rank"], group.rank());
      EXPECT_EQ((*copy)->notes.rank_metadata["step"], (*copy)->step);
    });
    EXPECT_EQ(found, std::vector<int64_t>(on_hosts.size(), found.front()));
    return found.front();
  }
  int64_t recover() { return recover(hosts); }

  const std::vector<std::string> hosts{"a", "a", "b", "b"};
  std::array<std::unique_ptr<PeerMemory>, 4> memories;
  MemoryStore store;
};

TEST_F(PeerMemories, AReplacedRankHasTheNewestStateBackFromItsPartner) {
  save({1, 2, 3});
  replace(2);
  EXPECT_EQ(recover(), 3);
  // And again: what was recovered is as good as what was saved.
  save({4});
  replace(0);
  EXPECT_EQ(recover(), 4);
}

TEST_F(PeerMemories, AWholeHostMayBeLost) {
  save({1, 2});
  replace(2);
  replace(3);
  EXPECT_EQ(recover(), 2);
}

TEST_F(PeerMemories, WhereRankAndPartnerAreLostThereIsNone) {
  save({1, 2});
  replace(0);
  replace(2);
  EXPECT_EQ(recover(), -1);
}

TEST_F(PeerMemories, NothingLostIsRecoveredWithoutAnyMove) {
  save({1});
  EXPECT_EQ(recover(), 1);
}

TEST_F(PeerMemories, BeforeTheFirstSaveThereIsNone) {
  EXPECT_EQ(recover(), -1);
}

TEST_F(PeerMemories, CopiesOfAnotherNumberOfRanksAreNotTaken) {
  save({1});
  EXPECT_EQ(recover({"a", "a", "b"}), -1);
}

TEST_F(PeerMemories, AfterARankDiedInTheMiddleOfASaveTheOneBeforeIsStillThere) {
  save({1, 2});
  testing::on_groups(hosts, [&](collective::Group& group) {
    PeerMemory& memory = *memories[static_cast<size_t>(group.rank())];
    State state = make_state(group.rank(), group.size());
    testing::fill(state, 3);
    Layout layout;
    uint64_t size_bytes = 0;
    for (const testing::OwnedChunk& chunk : state) {
      layout.push_back({chunk.name, chunk.info, chunk.region});
      size_bytes += chunk.bytes.size();
    }
    ASSERT_TRUE(memory.next_buffer(group.rank()).reserve(size_bytes));
    // Once one is through here all are connected, and the others may fail already.
    static_cast<void>(exchange_over(group)->all_gather("all are connected").has_value());
    if (group.rank() == 1) return group.abort("dies");
    EXPECT_FALSE(memory.keep(group, {.id = "third", .step = 3, .layout = layout}));
  });
  replace(1);
  EXPECT_EQ(recover(), 2);
}

TEST_F(PeerMemories, WhatACopyHasNotIsRefusedByName) {
  save({1});
  recover();
  std::vector<std::byte> bytes(29 * 31 * 4);
  const auto load = [&](std::string name, TensorInfo info, Region region) {
    const uint64_t size_bytes = chunk_bytes(info, region);
    const TensorTarget target{std::move(name), std::move(info), std::move(region),
                              std::span(bytes).first(size_bytes)};
    const Status loaded = memories[0]->load(std::span(&target, 1));
    return loaded ? std::string() : loaded.error().message;
  };
  EXPECT_NE(load("columns", {"F32", {29, 31}}, Region::all()).find("only a part"),
            std::string::npos);
  EXPECT_NE(load("columns", {"F32", {31, 29}}, Region::all()).find("not F32 [31, 29]"),
            std::string::npos);
  EXPECT_NE(load("column", {"F32", {29, 31}}, Region::all()).find("had none"), std::string::npos);
  EXPECT_EQ(load("columns", {"F32", {29, 31}}, Region::box({{0, 29}, {0, 3}})), "");
}

}  // namespace
}  // namespace yard::checkpoint
