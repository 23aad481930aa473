// How a loader reads from stores that are far away, stall or change, and indexes that do not fit.
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>

#include "loader/read_ahead_internal.h"
#include "loader/testing/loader_fixture.h"
#include "shards/shard_index.h"
#include "storage/testing/faulty_store.h"

namespace yard::loader {
namespace {

using storage::testing::Call;
using storage::testing::FaultyStore;
using storage::testing::Method;
using testing::expect_equal;
using testing::LoaderTest;

bool is_sample_read(const Call& call) {
  return call.method == Method::kGetRange && call.key.ends_with(".tar");
}

// `store` as if it were far away; counts the reads of samples.
FaultyStore counting(storage::ObjectStore& store, std::atomic<int>& read_count) {
  return FaultyStore(
      store,
      [&read_count](const Call& call) -> Status {
        read_count += is_sample_read(call);
        return Ok{};
      },
      true);
}

TEST_F(LoaderTest, FromARemoteStoreTheStreamIsTheSame) {
  make_shards(50);
  options_.random_flip = true;
  const auto expected = batches(*open(), 20);
  FaultyStore remote(
      store_, [](const Call&) -> Status { return Ok{}; }, true);
  for (const uint64_t budget : {uint64_t{1}, uint64_t{3000}, uint64_t{1} << 30}) {
    options_.read_ahead_bytes_max = budget;
    options_.thread_count = 3;
    const auto got = batches(*open(remote), 20);
    for (size_t i = 0; i < 20; ++i) expect_equal(got[i], expected[i]);
    const auto resumed = batches(*open(remote, expected[13].position), 3);
    for (size_t i = 0; i < 3; ++i) expect_equal(resumed[i], expected[13 + i]);
  }
}

// A burst would take the CPU from those who decode what came before.
TEST_F(LoaderTest, RequestsForWhatComesNextAreSpreadOverTheUseOfWhatIsThere) {
  constexpr uint64_t kStretch = 100, kCount = 600;
  make_shards(int(kCount), 100);
  std::atomic<int> read_count = 0;
  FaultyStore remote = counting(store_, read_count);
  const auto set = DataSet::open(remote, options_);
  ASSERT_TRUE(set);
  LoaderMeters meters;
  SampleReader reader(**set, options_, {}, counters_, meters);
  // No neighbours, so that each sample is a request; stretches end where windows do.
  ReadAhead ahead(reader, [](uint64_t number) { return number * 77 % kCount; },
                  {.bytes_max = 1 << 30, .window_end = [](uint64_t number) {
                     return (number / kStretch + 1) * kStretch;
                   }});
  for (uint64_t number = 0; number < 10 * kStretch; ++number) {
    const auto taken = ahead.take(number);
    ASSERT_TRUE(taken) << taken.error().message;
    ASSERT_TRUE(*taken);
    EXPECT_EQ((*taken)->place.sample, number * 77 % kCount % 100);
    if (number < kStretch) continue;
    const uint64_t wanted = number % kStretch + 1, next_end = (number / kStretch + 1) * kStretch;
    EXPECT_LE(uint64_t(read_count), next_end + std::min(kStretch, wanted * 4 / 3 + 2)) << number;
  }
}

TEST_F(LoaderTest, NeighboursOfAWindowComeByOneRequest) {
  make_shards(400, 100);
  std::atomic<int> read_count = 0;
  FaultyStore remote = counting(store_, read_count);
  options_.global_batch_size = 8;
  const auto got = batches(*open(remote), 100);  // two epochs
  ASSERT_EQ(got.size(), 100U);
  // The first stretches are too short for neighbours; each window after them is four requests.
  EXPECT_LT(read_count, 400);
  read_count = 0;
  auto loader = open(remote, {7, 0});
  batches(*loader, 100);
  const int of_the_first = read_count;
  batches(*loader, 300);
  EXPECT_LE(read_count - of_the_first, 6 * 8);
}

// Of ranks that share a window each has neighbours, too.
TEST_F(LoaderTest, RanksThatShareAWindowAskForNeighboursByOneRequestEach) {
  make_shards(800, 400);
  std::atomic<int> read_count = 0;
  FaultyStore remote = counting(store_, read_count);
  options_.global_batch_size = 80;
  options_.world_size = 4;
  std::multiset<uint64_t> ids;
  for (options_.rank = 0; options_.rank < 4; ++options_.rank) {
    auto loader = open(remote);
    batches(*loader, 20);  // two epochs: stretches have grown
    read_count = 0;
    for (const Batch& batch : batches(*loader, 10))
      ids.insert(batch.sample_ids.begin(), batch.sample_ids.end());
    // 200 samples of the rank; a few of them lie among those of the next rank.
    EXPECT_LE(read_count, 60) << options_.rank;
  }
  for (uint64_t id = 0; id < 800; ++id) EXPECT_EQ(ids.count(id), 1U) << id;
}

// A store in which every request waits until as many are under way as the test wants.
TEST_F(LoaderTest, ManySamplesAreAskedForAtOnce) {
  make_shards(50, 1);
  std::mutex mutex;
  std::condition_variable changed;
  int count = 0;
  FaultyStore remote(
      store_,
      [&](const Call& call) -> Status {
        if (!is_sample_read(call)) return Ok{};
        std::unique_lock lock(mutex);
        ++count;
        changed.notify_all();
        if (!changed.wait_for(lock, std::chrono::seconds(60), [&] { return count >= 20; }))
          return Error{Code::kInternal, "20 requests never came together"};
        return Ok{};
      },
      true);
  options_.thread_count = 1;
  EXPECT_EQ(batches(*open(remote), 8).size(), 8U);
}

TEST_F(LoaderTest, TheReadAheadKeepsToItsBudget) {
  make_shards(50);
  std::atomic<int> read_count = 0;
  FaultyStore remote = counting(store_, read_count);
  options_.read_ahead_bytes_max = 1;
  options_.prefetch_batch_count = 1;
  auto loader = open(remote);
  batches(*loader, 2);
  // Two batches of 6 given, one being made, and for each thread and the guess one more.
  EXPECT_LE(read_count, 3 * 6 + 2);
}

TEST_F(LoaderTest, AStoreThatIsAwayIsWaitedForAndNothingIsLost) {
  make_shards(30);
  const auto expected = batches(*open(), 10);
  for (const bool is_remote : {false, true}) {
    std::atomic<int> reads = 0;
    FaultyStore away(
        store_,
        [&](const Call& call) -> Status {
          const int read = is_sample_read(call) ? ++reads : 0;
          if (read >= 2 && read <= 4) return Error{Code::kUnavailable, "away"};
          return Ok{};
        },
        is_remote);
    options_.store_patience = std::chrono::seconds(60);
    const auto got = batches(*open(away), 10);
    ASSERT_EQ(got.size(), 10U);
    for (size_t i = 0; i < 10; ++i) expect_equal(got[i], expected[i]);
    EXPECT_GT(reads, 4);
  }
}

// Shard by shard it would take hours to say so of a large data set.
TEST_F(LoaderTest, AStoreThatIsAwayAtTheOpeningIsNotAskedForEveryShard) {
  for (int i = 0; i < 5000; ++i)
    options_.shards.push_back("s" + std::to_string(10'000 + i) + ".tar");
  std::atomic<int> call_count = 0;
  FaultyStore away(
      store_,
      [&](const Call&) -> Status {
        ++call_count;
        return Error{Code::kUnavailable, "away"};
      },
      true);
  const auto loader = Loader::open(away, options_, {}, counters_);
  ASSERT_FALSE(loader);
  EXPECT_EQ(loader.error().code, Code::kUnavailable) << loader.error().message;
  EXPECT_LT(call_count, 500);
}

TEST_F(LoaderTest, ALoaderEndsWhileItsStoreIsAway) {
  make_shards(30);
  FaultyStore away(
      store_,
      [](const Call& call) -> Status {
        if (is_sample_read(call)) return Error{Code::kUnavailable, "away"};
        return Ok{};
      },
      true);
  options_.store_patience = std::chrono::seconds(3600);
  auto loader = open(away);
  StopSource stop;
  stop.request();
  EXPECT_EQ(loader->next(stop.token()).error().code, Code::kCancelled);
}

TEST_F(LoaderTest, BadSamplesOfARemoteStoreAreSkippedAlike) {
  make_shards(30, 10, {13, 20, 21});
  options_.bad_samples = BadSamplePolicy::kSkip;
  const auto expected = batches(*open(), 10);
  FaultyStore remote(
      store_, [](const Call&) -> Status { return Ok{}; }, true);
  auto loader = open(remote);
  const auto got = batches(*loader, 10);
  for (size_t i = 0; i < 10; ++i) expect_equal(got[i], expected[i]);
  EXPECT_GE(loader->skipped_count(), 6);
}

TEST_F(LoaderTest, WhatIsCachedIsNotReadAheadAgain) {
  make_shards(30);
  options_.cache_bytes_max = uint64_t{1} << 30;
  options_.read_ahead_bytes_max = 2000;  // a few samples
  std::atomic<int> read_count = 0;
  FaultyStore remote = counting(store_, read_count);
  const auto got = batches(*open(remote), 20);
  const auto expected = batches(*open(), 20);
  for (size_t i = 0; i < 20; ++i) expect_equal(got[i], expected[i]);
  // 30 and what was asked for before its first reading had come into the cache.
  EXPECT_LE(read_count, 60);
}

TEST_F(LoaderTest, IndexesThatDoNotFitAreReadWhenNeeded) {
  make_shards(60, 5);
  for (const std::string& shard : options_.shards)
    ASSERT_TRUE(store_.head(shards::index_key(shard)));
  const auto expected = batches(*open(), 20);
  options_.index_bytes_max = 1;
  options_.thread_count = 3;
  const auto got = batches(*open(), 20);
  for (size_t i = 0; i < 20; ++i) expect_equal(got[i], expected[i]);
}

TEST_F(LoaderTest, AShardReplacedWhileItsIndexWasNotInMemoryIsNotMixed) {
  make_shards(60, 5);
  options_.index_bytes_max = 1;
  auto loader = open();
  batches(*loader, 10);  // one epoch: every shard was opened
  const auto shards = options_.shards;
  make_shards(59, 5);
  std::optional<Error> error;
  for (int i = 0; i < 60 && !error; ++i)
    if (auto batch = loader->next({}); !batch) error = batch.error();
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code, Code::kCorrupt) << error->message;
}

}  // namespace
}  // namespace yard::loader
